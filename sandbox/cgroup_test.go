package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestCgroup freezes groups whose files are only files.
func TestCgroup(t *testing.T) {
	for _, c := range []struct{ control, state, asked, frozen, thawed string }{
		{"cgroup.freeze", "cgroup.events", "1", "populated 1\nfrozen 1\n", "0"},
		{"freezer.state", "freezer.state", "FROZEN", "FROZEN\n", "THAWED"},
	} {
		dir := t.TempDir()
		write := func(name, text string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want := func(what, text string) {
			t.Helper()
			if got, err := os.ReadFile(filepath.Join(dir, c.control)); err != nil || string(got) != text {
				t.Errorf("%s: %s has %q (%v), want %q", what, c.control, got, err, text)
			}
		}
		if _, err := openCgroup(dir); !errors.Is(err, ErrNotFound) {
			t.Errorf("an ordinary directory: %v", err)
		}
		write(c.state, "populated 1\nfrozen 0\n")
		write(c.control, "")
		g, err := openCgroup(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.control != c.state { // a file that is no cgroup's says FROZEN as soon as that is written
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err = g.freeze(ctx)
			cancel()
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("a group that does not freeze: %v", err)
			}
			want("given up", c.thawed)
		}
		write(c.state, c.frozen)
		if err := g.freeze(t.Context()); err != nil {
			t.Error(err)
		}
		want("frozen", c.asked)
		if err := g.thaw(); err != nil {
			t.Error(err)
		}
		want("thawed", c.thawed)
	}
	if err := cgroup("/nowhere/group").thaw(); err != nil {
		t.Errorf("a group that is gone: %v", err)
	}
	for _, bad := range []string{"", "x", "/a\x00b", "/" + string(make([]byte, 5000))} {
		if _, err := openCgroup(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.10q: %v", bad, err)
		}
	}
}
