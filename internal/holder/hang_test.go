package holder

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
)

// TestStuck: a daemon that was killed and does not end, because a thread of it waits in the kernel, is followed by another
// one, whether the holder has started it or not. So is one that somebody starts in its place.
func TestStuck(t *testing.T) {
	home := t.TempDir()
	cmd := daemon(t, home, "home/lock", "mount/a")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	defer end(t, home)
	defer func() {
		for _, l := range lines(home, "ready") {
			_ = unix.Kill(pidOf(t, l), unix.SIGKILL)
		}
		_ = cmd.Wait()
	}()
	for n := 2; n < 4; n++ {
		if err := os.WriteFile(filepath.Join(home, stuckFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "ready again", func() bool { return len(lines(home, "ready")) == n })
		before := pidOf(t, lines(home, "ready")[n-2])
		if err := unix.Kill(before, 0); err != nil {
			t.Errorf("process %d has ended: %v", before, err)
		}
	}
	deaths, want := lines(home, "death"), strconv.Quote("exit status 0"+stuckToo)
	if len(deaths) != 2 || !strings.Contains(deaths[0], want) || !strings.Contains(deaths[1], want) {
		t.Errorf("deaths: %q", deaths)
	}
}

// TestEnding: a process that is only slow to end, as where others want the processors too, is waited for, so that it is
// known how it has ended.
func TestEnding(t *testing.T) {
	old := mostEndWait
	mostEndWait = soon
	defer func() { mostEndWait = old }()
	stop := filepath.Join(t.TempDir(), "stop")
	cmd := &exec.Cmd{Path: self(t), Args: []string{enderName, stop}, Env: os.Environ()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // it ends with 3, or is killed
	defer func() { _ = cmd.Process.Kill() }()
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(pidfd) }()
	eventually(t, "the end of its first thread", func() bool {
		_, alive := processes.Life(cmd.Process.Pid)
		return !alive
	})
	found := make(chan bool, 1)
	go func() { found <- dead(cmd.Process.Pid, pidfd) }()
	select {
	case <-found:
		t.Error("it was not waited for")
	case <-time.After(4 * endWait): // it may as well be later
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !<-found || !ended(pidfd) || fateOf(cmd.Process.Pid, pidfd) != "exit status 3" {
		t.Error("it has ended, and how is known")
	}
}

// TestHang: a daemon that takes over and does not come to serve is killed and started again, a number of times. What it was
// doing is told. One that hangs is no reason for which all could not be given up.
func TestHang(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, waitFile), []byte("100ms"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := daemon(t, home, "home/lock", "mount/a")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	defer end(t, home)
	if err := os.WriteFile(filepath.Join(home, hangFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	s := givenUp(t, home)
	last := s.Deaths[len(s.Deaths)-1]
	if n := len(lines(home, "hangs")); n != maxFailures || s.Failures != n || s.Since.IsZero() ||
		last.Message != "it made no progress for 100ms: hanging" || last.Reason != "killed by SIGKILL" {
		t.Errorf("%d: %+v", n, s)
	}
}

// TestGiveUpHanging: what waits for a daemon that hangs can be given up.
func TestGiveUpHanging(t *testing.T) {
	home := t.TempDir()
	cmd := daemon(t, home, "home/lock", "mount/a")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	defer end(t, home)
	if err := Drop(home); !errors.Is(err, ErrConflict) {
		t.Errorf("got %v, want a conflict with a daemon that serves", err)
	}
	if err := os.WriteFile(filepath.Join(home, hangFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "a daemon that hangs", func() bool { return len(lines(home, "hung")) == 1 })
	s, err := Ask(t.Context(), home)
	if err != nil || s.Doing != "hanging" || s.Ready || s.Since.IsZero() {
		t.Errorf("%+v, %v", s, err)
	}
	if err := Drop(home); err != nil {
		t.Error(err)
	}
	gone(t, s.Daemon)
	gone(t, s.PID)
}

// TestStuckAlone: a daemon that starts finds that the one before was killed and does not end.
func TestStuckAlone(t *testing.T) {
	home := t.TempDir()
	cmd := daemon(t, home, "home/lock")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if err := os.WriteFile(filepath.Join(home, stuckFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of its first thread", func() bool {
		_, alive := processes.Life(cmd.Process.Pid)
		return !alive
	})
	begun(t, home)
	if deaths, err := ReadDeaths(home); err != nil || len(deaths) != 1 || deaths[0].PID != cmd.Process.Pid {
		t.Error(deaths, err)
	}
}

// givenUp waits until the holder of a home has given up to start its daemon.
func givenUp(t *testing.T, home string) (s Status) {
	t.Helper()
	eventually(t, "given up", func() bool {
		var err error
		if s, err = Ask(t.Context(), home); err != nil {
			t.Fatal(err)
		}
		return s.GivenUp
	})
	return s
}

// TestHolderHangs: a holder that does not answer is killed by the daemon that serves, and another one has everything. One
// that does not answer when all is given up ends as well.
func TestHolderHangs(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	f := memfd(t, "x")
	for _, name := range []string{"mount/a", "mount/b"} {
		if err := c.Keep(name, []byte("1"), f); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Ready(); err != nil {
		t.Fatal(err)
	}
	before := answerWait
	answerWait = 300 * time.Millisecond
	t.Cleanup(func() { answerWait = before })
	hang := func() (pid int) {
		pid = c.PID()
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the holder stops", func() bool {
			stat, _ := processes.StatOfProcess(pid)
			return stat.State == 'T'
		})
		return pid
	}
	first := hang()
	if err := c.Forget("mount/a"); err != nil {
		t.Fatal(err)
	}
	gone(t, first)
	if got := describe(t, c); got != "mount/b=1(x)" {
		t.Error(got)
	}
	second := hang()
	if err := c.Keep("mount/c", []byte("2"), f); err != nil {
		t.Fatal(err)
	}
	gone(t, second)
	if got := describe(t, c); got != "mount/b=1(x) mount/c=2(x)" {
		t.Error(got)
	}
	last := hang()
	if err := c.Leave(false); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
	gone(t, last)
}
