package holder

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKilledWhileStarting: daemons that are killed before they serve are started again however often that happens.
func TestKilledWhileStarting(t *testing.T) {
	home := t.TempDir()
	cmd := daemon(t, home, "mount/a")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	defer end(t, home)
	if err := os.WriteFile(filepath.Join(home, hangFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for n := range maxFailures + 1 {
		eventually(t, "another one", func() bool { return len(lines(home, "hangs")) == n+1 })
		if n == maxFailures {
			if err := os.Remove(filepath.Join(home, hangFile)); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Kill(pidOf(t, lines(home, "hangs")[n]), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 2 })
}

// TestUntold: a death is told until a daemon has noted it, which it need not have done to serve.
func TestUntold(t *testing.T) {
	home := t.TempDir()
	cmd := daemon(t, home, "mount/a")
	eventually(t, "ready", func() bool { return len(lines(home, "ready")) == 1 })
	defer end(t, home)
	untold := filepath.Join(home, untoldFile)
	if err := os.WriteFile(untold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for n, deaths := range []int{1, 3, 6, 7} { // 1, 2 and 3 of them, then those since they were noted
		what := "ready"
		if n >= 2 {
			_ = os.Remove(untold)
			what = "told"
		}
		want := map[string]int{"ready": n + 2, "told": n}[what]
		eventually(t, what, func() bool { return len(lines(home, what)) == want })
		if got := lines(home, "death"); len(got) != deaths {
			t.Fatalf("%d: %q", n, got)
		}
		s, err := Ask(t.Context(), home)
		if err != nil || !s.Ready || s.Failures != 0 {
			t.Fatal(s, err)
		}
		if err := unix.Kill(s.Daemon, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStartPause: programs do not wait for long for a daemon because those before it were killed.
func TestStartPause(t *testing.T) {
	for _, c := range []struct {
		failures int
		killed   bool
		want     time.Duration
	}{
		{0, false, 50 * time.Millisecond},
		{3, false, 400 * time.Millisecond},
		{100, false, 3200 * time.Millisecond},
		{1, true, 100 * time.Millisecond},
		{100, true, 200 * time.Millisecond},
	} {
		if got := startPause(c.failures, c.killed); got != c.want {
			t.Errorf("%d failures, %t: got %v, want %v", c.failures, c.killed, got, c.want)
		}
	}
}
