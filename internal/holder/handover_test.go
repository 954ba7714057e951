package holder

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHandOver: a daemon that speaks a newer protocol than the holder has a holder of its own program take its place, with
// everything.
func TestHandOver(t *testing.T) {
	home := t.TempDir()
	c := begun(t, home)
	for i := range 10 {
		if err := c.Keep("mount/"+strconv.Itoa(i), []byte("1"), memfd(t, "x")); err != nil {
			t.Fatal(err)
		}
	}
	before := c.PID()
	if err := c.Leave(true); err != nil {
		t.Fatal(err)
	}
	old := versions
	versions = span{1, 2} // the holders speak version 1
	defer func() { versions = old }()
	n := begun(t, home)
	if n.PID() == before {
		t.Error("the old holder goes on")
	}
	gone(t, before)
	if got := describe(t, n); strings.Count(got, "=1(x)") != 10 {
		t.Error(got)
	}
	if s, err := Ask(t.Context(), home); err != nil || s.PID != n.PID() || s.Kept != 10 || s.Daemon != os.Getpid() {
		t.Error(s, err)
	}
}

// TestHolderDiesWhileLeaving: the holder dies after a daemon that leaves for another one has closed what is kept, or before it has
// noticed: the successor finds everything in the next holder.
func TestHolderDiesWhileLeaving(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		home := t.TempDir()
		c := begun(t, home)
		file := memfd(t, "x")
		if err := errors.Join(c.Keep("mount/1", []byte("1"), file), c.HandOver(), file.Close()); err != nil {
			t.Fatal(err)
		}
		before := c.PID()
		if !noticed {
			c.mu.Lock() // whoever notices waits
		}
		if err := unix.Kill(before, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		gone(t, before)
		if noticed {
			eventually(t, "another holder", func() bool { pid := c.PID(); return pid != 0 && pid != before })
		} else {
			<-c.conn.gone
			r := &request{Op: opLeave}
			if err := c.leaveLocked(r); !errors.Is(err, errEnded) {
				t.Fatal(err)
			}
			c.mu.Unlock()
		}
		if err := c.Leave(true); err != nil {
			t.Fatal(err)
		}
		if got := describe(t, begun(t, home)); got != "mount/1=1(x)" {
			t.Error(noticed, got)
		}
	}
}
