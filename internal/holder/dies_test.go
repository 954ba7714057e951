package holder

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHolderDiesBeforeKeep: a daemon that has the role, and perhaps not the home, starts no holder in the place of one that
// dies; what that kept is gone.
func TestHolderDiesBeforeKeep(t *testing.T) {
	home := t.TempDir()
	first := begun(t, home)
	if err := first.Keep("mount/1", []byte("1"), memfd(t, "x")); err != nil {
		t.Fatal(err)
	}
	if err := first.Leave(true); err != nil {
		t.Fatal(err)
	}
	c := begun(t, home)
	pid := c.PID()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no holder", func() bool {
		k, err := c.Get("mount/1")
		if err != nil {
			t.Fatal(err)
		}
		(&answer{files: k.Files}).close()
		if _, err := c.Kept(); err != nil {
			t.Fatal(err)
		}
		return c.PID() == 0
	})
	if s, err := Ask(t.Context(), home); !errors.Is(err, ErrNone) {
		t.Error(s, err)
	}
	if err := c.Keep("home/lock", nil); err != nil {
		t.Fatal(err)
	}
	if got := c.PID(); got == 0 || got == pid {
		t.Error("the holder is process", got)
	}
}
