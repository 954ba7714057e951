package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// tool is a command of another program, run to its end.
type tool struct {
	dir   string   // working directory
	env   []string // added to a plain environment
	stdin []byte
}

// run runs a command; its error holds the end of what it wrote. On cancellation the command's whole process
// group is ended and waited for.
func (t tool) run(ctx context.Context, name string, args ...string) error {
	_, err := t.output(ctx, name, args...)
	return err
}

// output is run, and gives what the command wrote to stdout.
func (t tool) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	const (
		tail   = 600             // characters of what it wrote
		polite = 5 * time.Second // to end when asked to
		pipes  = time.Minute     // until nobody else holds its output
	)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.dir
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.Env = append(cmd.Env, t.env...)
	if t.stdin != nil {
		cmd.Stdin = bytes.NewReader(t.stdin)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var hard *time.Timer
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		hard = time.AfterFunc(polite, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, syscall.SIGTERM)
	}
	cmd.WaitDelay = pipes
	err := cmd.Run()
	if hard != nil {
		hard.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // children that were left, if any
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", name, ctx.Err())
		}
		msg := strings.TrimSpace(stderr.String())
		if msg == "" {
			msg = strings.TrimSpace(stdout.String())
		}
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, msg[max(0, len(msg)-tail):])
	}
	return stdout.Bytes(), nil
}

// missing names those of the programs that are not on the PATH.
func missing(programs []string) []string {
	var out []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			out = append(out, p)
		}
	}
	return out
}

// cost is what an operation took.
type cost struct {
	wall time.Duration
	cpu  time.Duration // of this process and the children it waited for, user and system
}

func (c *cost) add(o cost) { c.wall += o.wall; c.cpu += o.cpu }

// measure runs fn and tells its cost. One operation at a time, or CPU time is counted double.
func measure(fn func() error) (cost, error) {
	cpu, start := cpuTime(), time.Now()
	err := fn()
	return cost{wall: time.Since(start), cpu: cpuTime() - cpu}, err
}

func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
