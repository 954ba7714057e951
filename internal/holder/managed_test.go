package holder

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// manage plays a service manager, which starts the holder of a home again whenever it ends.
func manage(t *testing.T, home string) {
	t.Helper()
	var ended sync.WaitGroup
	stop := make(chan struct{})
	start := func() *exec.Cmd {
		cmd := &exec.Cmd{Path: self(t), Args: []string{Name, home, managedArg}, Stderr: os.Stderr}
		if err := cmd.Start(); err != nil {
			t.Error(err)
		}
		return cmd
	}
	cmd := start()
	ended.Go(func() {
		for {
			_ = cmd.Wait()
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				cmd = start()
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		eventually(t, "the end of the holder", func() bool {
			if s, err := Ask(context.WithoutCancel(t.Context()), home); err == nil {
				_ = unix.Kill(s.PID, unix.SIGTERM)
			}
			_, err := dial(context.WithoutCancel(t.Context()), home)
			return err != nil
		})
		ended.Wait()
	})
	eventually(t, "a holder", func() bool { _, err := Ask(t.Context(), home); return err == nil })
}

func asked(t *testing.T, home string) Status {
	t.Helper()
	s, err := Ask(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestManaged: a holder that a service manager runs starts no daemon. It keeps what a daemon had for the next one, as often
// as that fails, and lives on when a daemon takes leave.
func TestManaged(t *testing.T) {
	home := t.TempDir()
	manage(t, home)
	cmd := daemon(t, home, "home/lock", "mount/a")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "its death", func() bool { return asked(t, home).Daemon == 0 })
	if _, err := AskStart(t.Context(), home); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, hangFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for n := range maxFailures + 2 {
		cmd := daemon(t, home, "-again")
		eventually(t, "hangs", func() bool { return len(lines(home, "hangs")) == n+1 })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		eventually(t, "its death", func() bool { return asked(t, home).Daemon == 0 })
	}
	s := asked(t, home)
	if !s.Managed || s.GivenUp || s.Kept != 1 || s.Failures != maxFailures+2 || !s.Next.IsZero() || len(s.Deaths) != maxFailures+3 {
		t.Errorf("%+v", s)
	}
	c := begun(t, home)
	if d := c.Deaths(); len(d) != maxFailures+3 || !d[0].Served || d[1].Served {
		t.Error(d)
	}
	if got := describe(t, c); !strings.Contains(got, "mount/a=data()") {
		t.Error(got)
	}
	if err := c.Leave(false); err != nil {
		t.Fatal(err)
	}
	if now := asked(t, home); now.PID != s.PID || now.Kept != 0 || now.Daemon != 0 {
		t.Errorf("%+v", now)
	}
	if n := len(lines(home, "ready")); n != 1 {
		t.Errorf("%d daemons have served", n)
	}
}

// TestManagedEnded: what a service manager tells of daemons that never came to ask for the role counts as their deaths, and
// delays the next one. What it tells of others completes what the holder knows.
func TestManagedEnded(t *testing.T) {
	home := t.TempDir()
	manage(t, home)
	run := func(arg string, env ...string) {
		t.Helper()
		cmd := &exec.Cmd{Path: self(t), Args: []string{Name, home, arg}, Stderr: os.Stderr}
		cmd.Env = append(os.Environ(), env...)
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	}
	ended := func(result, code, status string) {
		t.Helper()
		run(endedArg, "SERVICE_RESULT="+result, "EXIT_CODE="+code, "EXIT_STATUS="+status)
	}
	ended("success", "exited", "0") // of one that had nothing to do with the holder
	ended("exit-code", "exited", "203")
	ended("core-dump", "dumped", "ABRT")
	ended("signal", "killed", "KILL")
	run(pauseArg)
	s := asked(t, home)
	if since := time.Since(s.Deaths[len(s.Deaths)-1].Time); since < firstDelay {
		t.Errorf("the next one is started %v after the last one", since)
	}
	if s.Failures != 3 || len(s.Deaths) != 3 || s.Deaths[0].Reason != "exit status 203" ||
		s.Deaths[1].Reason != "killed by SIGABRT, core dumped" || s.Deaths[2].Reason != "killed by SIGKILL" {
		t.Errorf("%+v", s)
	}
	cmd := daemon(t, home, "mount/a")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	ended("core-dump", "dumped", "SEGV")
	if s := asked(t, home); s.Failures != 0 || len(s.Deaths) != 1 || !strings.HasPrefix(s.Deaths[0].Reason, "killed by SIGSEGV") || !s.Deaths[0].Served {
		t.Errorf("%+v", s)
	}
	ended("exit-code", "exited", "1")
	if s := asked(t, home); s.Failures != 1 || len(s.Deaths) != 2 || s.Deaths[1].Served || s.Deaths[1].String() == "" {
		t.Errorf("%+v", s)
	}
}

// TestManagedHolderEnds: the daemon gives everything to the holder that the service manager starts in the place of one that
// was killed, or told to end.
func TestManagedHolderEnds(t *testing.T) {
	home := t.TempDir()
	manage(t, home)
	c := begun(t, home)
	if err := c.Keep("mount/a", []byte("1"), memfd(t, "x")); err != nil {
		t.Fatal(err)
	}
	for _, signal := range []unix.Signal{unix.SIGKILL, unix.SIGTERM} {
		pid := c.PID()
		if err := unix.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another holder with everything", func() bool {
			s, err := Ask(t.Context(), home)
			return err == nil && s.PID != pid && s.Managed && s.Kept == 1
		})
	}
	if got := describe(t, c); got != "mount/a=1(x)" {
		t.Error(got)
	}
}

// TestManagedHandOver: the holder of a service manager that speaks an older protocol ends, and the one that follows it gets
// everything.
func TestManagedHandOver(t *testing.T) {
	home := t.TempDir()
	manage(t, home)
	c := begun(t, home)
	if err := c.Keep("mount/a", []byte("1"), memfd(t, "x")); err != nil {
		t.Fatal(err)
	}
	before := c.PID()
	if err := c.Leave(true); err != nil {
		t.Fatal(err)
	}
	old := versions
	versions = span{1, 2}
	defer func() { versions = old }()
	n := begun(t, home)
	if got := describe(t, n); got != "mount/a=1(x)" || n.PID() == before {
		t.Error(got, n.PID(), before)
	}
	if s := asked(t, home); s.PID != n.PID() || !s.Managed || s.Kept != 1 || s.Daemon != os.Getpid() {
		t.Errorf("%+v", s)
	}
}

// TestManagedAlone: the service manager's holder does not take the place of another one.
func TestManagedAlone(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	if err := c.Keep("mount/a", nil, memfd(t, "x")); err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: self(t), Args: []string{Name, home, managedArg}}
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != exitConflict {
		t.Error(err)
	}
	if s := asked(t, home); s.PID != c.PID() || s.Kept != 1 {
		t.Errorf("%+v", s)
	}
}
