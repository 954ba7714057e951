package cgroup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"snapfs/sandbox/api"
)

// TestGroup freezes groups whose files are only files.
func TestGroup(t *testing.T) {
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
		if _, err := Open(dir); !errors.Is(err, api.ErrNotFound) {
			t.Errorf("an ordinary directory: %v", err)
		}
		write(c.state, "populated 1\nfrozen 0\n")
		write(c.control, "")
		g, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.control != c.state { // a file that is no cgroup's says FROZEN as soon as that is written
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err = g.Freeze(ctx)
			cancel()
			if !errors.Is(err, api.ErrUnavailable) {
				t.Errorf("a group that does not freeze: %v", err)
			}
			want("given up", c.thawed)
		}
		write(c.state, c.frozen)
		if err := g.Freeze(t.Context()); err != nil {
			t.Error(err)
		}
		want("frozen", c.asked)
		if err := g.Thaw(); err != nil {
			t.Error(err)
		}
		want("thawed", c.thawed)
	}
	if err := Group("/nowhere/group").Thaw(); err != nil {
		t.Errorf("a group that is gone: %v", err)
	}
	for _, bad := range []string{"", "x", "/a\x00b", "/" + string(make([]byte, 5000))} {
		if _, err := Open(bad); !errors.Is(err, api.ErrInvalid) {
			t.Errorf("%.10q: %v", bad, err)
		}
	}
}
