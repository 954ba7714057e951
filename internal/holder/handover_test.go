package holder

import (
	"os"
	"strconv"
	"strings"
	"testing"
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
