package layers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSetuidAtOnce makes files that are setuid or setgid: at no step, where a crash may come, has one its name and not
// yet its mode.
func TestSetuidAtOnce(t *testing.T) {
	r := newRig(t)
	defer func() { steps = nil }()
	for _, c := range []struct {
		name   string
		caller Caller
		mode   uint32
	}{
		{"setuid", Caller{}, unix.S_IFREG | 0o4755},
		{"setgid", Caller{}, unix.S_IFREG | 0o2755},
		{"fifo", Caller{}, unix.S_IFIFO | 0o6644},
		{"of a user", Caller{UID: 1000, GID: 1000}, unix.S_IFREG | 0o6711},
	} {
		path := filepath.Join(r.upper(), c.name)
		looked := 0
		steps = func(step string) {
			looked++
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err == nil && st.Mode != c.mode {
				t.Errorf("%s: mode %o after the step %q", c.name, st.Mode, step)
			}
		}
		e, err := r.o.Mknod(c.caller, RootNode, c.name, c.mode, 0)
		steps = nil
		if err != nil || e.Attr.Mode != c.mode || looked == 0 {
			t.Errorf("%s: mode %o after %d steps: %v", c.name, e.Attr.Mode, looked, err)
		}
		if left, err := os.ReadDir(r.work()); err != nil || len(left) > 0 {
			t.Errorf("in the work directory: %v, %v", left, err)
		}
	}
}

// TestSetuidOtherName: a change of owner takes setuid from a file that has lost the name by which it was known and has
// another one, as from any file that has a name.
func TestSetuidOtherName(t *testing.T) {
	r := newLiveRig(t)
	r.create("known", "text")
	if err := errors.Join(r.link("known", "other"), r.setattr("known", SetAttr{Valid: SetMode, Mode: 0o4755})); err != nil {
		t.Fatal(err)
	}
	id := r.nodeOf("known")
	r.killed() // which forgets the other name
	r.state(id)
	if err := r.unlink("known"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.o.SetAttr(Caller{}, id, SetAttr{Valid: SetUID | KillPriv, UID: 1}); err != nil {
		t.Fatal(err)
	}
	at, err := r.o.GetAttr(id)
	if err != nil || at.Mode&0o7777 != 0o755 || at.UID != 1 {
		t.Errorf("mode %o, owner %d: %v", at.Mode, at.UID, err)
	}
}
