package program

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Setup is where and with what a program is run.
type Setup struct {
	Dir   string   // working directory
	Env   []string // added to a plain environment
	Stdin []byte
}

// Run runs a command in this program's environment and working directory, as Setup.Run does.
func Run(ctx context.Context, name string, args ...string) error {
	return Setup{}.Run(ctx, name, args...)
}

// Output is Run, and gives what the command wrote to stdout.
func Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	return Setup{}.Output(ctx, name, args...)
}

// Run runs a command; its error holds the end of what it wrote. On cancellation the command's whole process
// group is ended and waited for.
func (t Setup) Run(ctx context.Context, name string, args ...string) error {
	_, err := t.Output(ctx, name, args...)
	return err
}

// Output is Run, and gives what the command wrote to stdout.
func (t Setup) Output(ctx context.Context, name string, args ...string) ([]byte, error) {
	const (
		tail   = 600             // characters of what it wrote
		polite = 5 * time.Second // to end when asked to
		pipes  = time.Minute     // until nobody else holds its output
	)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.Dir
	cmd.Env = append(cmd.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.Env = append(cmd.Env, t.Env...)
	if t.Stdin != nil {
		cmd.Stdin = bytes.NewReader(t.Stdin)
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

// Missing names those of the programs that are not on the PATH.
func Missing(programs []string) []string {
	var out []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			out = append(out, p)
		}
	}
	return out
}
