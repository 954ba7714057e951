package layers

import (
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
