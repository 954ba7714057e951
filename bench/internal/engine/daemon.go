package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"snapfs/bench/internal/cost"
	"snapfs/sandbox/client"
)

// Daemon is a daemon that this program started, and a connection to it: what is measured is the API as the command line
// uses it, without the start of a process.
type Daemon struct {
	cmd     *exec.Cmd
	API     *client.Client
	metrics string // address
	Home    string
	log     lastBytes // what the daemon wrote to its standard error
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct{ b []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	const most = 16 << 10
	l.b = append(l.b, p...)
	l.b = l.b[max(0, len(l.b)-most):]
	return len(p), nil
}

// Start starts a daemon on a new home.
func Start(ctx context.Context, e Engine, home string) (*Daemon, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free now
	if err != nil {
		return nil, err
	}
	s := &Daemon{metrics: l.Addr().String(), Home: home}
	if err := l.Close(); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(
		context.WithoutCancel(ctx), e.Binary, "--home", home, "serve", "--metrics", s.metrics, "--idle-after", "0",
	)
	s.cmd.Stderr = &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for this program, which then ends the daemon
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	for try := 0; ; try++ {
		if s.API, err = client.Dial(ctx, home); err == nil {
			return s, nil
		}
		if try == 500 || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err(), s.Stop())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends the daemon, which unmounts everything. If it did not end as it should, the error has the end of its log.
func (s *Daemon) Stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(time.Minute, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	if err = errors.Join(err, s.cmd.Wait()); err != nil {
		err = fmt.Errorf("the daemon: %w; the end of its log:\n%s", err, s.log.b)
	}
	return err
}

// Held reads the sum of all pauses from the daemon's metrics.
func (s *Daemon) Held(ctx context.Context) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.metrics+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), "snapfs_held_seconds_sum "); ok {
			sec, err := strconv.ParseFloat(v, 64)
			return time.Duration(sec * float64(time.Second)), err
		}
	}
	return 0, errors.New("the daemon does not tell for how long it held changes back")
}

// Memory is the resident memory of the daemon, in bytes.
func (s *Daemon) Memory() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// CPU is the processor time that the daemon has taken, user and system.
func (s *Daemon) CPU() (time.Duration, error) { return cost.OfProcess(s.cmd.Process.Pid) }

// PeakMemory is the most resident memory that the daemon has had, in bytes.
func (s *Daemon) PeakMemory() (int64, error) { return cost.Peak(s.cmd.Process.Pid) }
