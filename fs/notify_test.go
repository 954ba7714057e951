package fs

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"snapfs/fs/internal/fakefs"
)

// lstat has another process look at a name.
func lstat(t *testing.T, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "stat", path)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("stat %s: %v: %s", path, err, out)
	}
}

// TestNotify counts the requests that the kernel sends after notifications.
func TestNotify(t *testing.T) {
	f := fakefs.New()
	m, dir, said := serveFake(t, f)
	name := filepath.Join(dir, "known")
	asked := func(kind string) uint64 { return m.Requests()[kind] }
	for _, c := range []struct {
		what string
		do   func() error
		kind string
		want uint64 // requests of this kind after another look
	}{
		{"nothing", func() error { return nil }, "LOOKUP", 0},
		{"name", func() error { return m.InvalidateEntry(1, "known") }, "LOOKUP", 1},
		{"another name", func() error { return m.InvalidateEntry(1, "unknown") }, "LOOKUP", 0},
		{"name in an unknown directory", func() error { return m.InvalidateEntry(77, "known") }, "LOOKUP", 0},
		{"node", func() error { return m.InvalidateNode(2) }, "GETATTR", 1},
		{"unknown node", func() error { return m.InvalidateNode(77) }, "GETATTR", 0},
		{"deleted name", func() error { return m.DeleteEntry(1, 2, "known") }, "LOOKUP", 1},
		{"name of another node", func() error { return m.DeleteEntry(1, 77, "known") }, "LOOKUP", 1},
	} {
		lstat(t, name)
		before := asked(c.kind)
		if err := c.do(); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		lstat(t, name)
		if got := asked(c.kind) - before; got != c.want {
			t.Errorf("%s: %d requests %s, want %d", c.what, got, c.kind, c.want)
		}
	}
	if s := said.String(); s != "" {
		t.Errorf("log: %s", s)
	}
}

// TestNotifyAfterEnd sends to a connection that has ended.
func TestNotifyAfterEnd(t *testing.T) {
	m, _, _ := serveFake(t, fakefs.New())
	if err := m.Unmount(false); err != nil {
		t.Fatal(err)
	}
	fakefs.WaitDone(t, m.Done())
	if err := m.InvalidateNode(1); err != nil {
		t.Error(err)
	}
}
