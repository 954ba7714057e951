package sandbox

import (
	"context"
	"fmt"
	"testing"
	"time"

	"snapfs/layers"
)

// TestReadDuringRollback rolls a mounted workspace back, and seals and stores another state of it, while somebody reads
// what it was: the directories stay until he has done.
func TestReadDuringRollback(t *testing.T) {
	ctx := t.Context()
	y := newHistory(t)
	y.grow(1)
	for n, change := range []func() error{
		func() error {
			_, err := y.h.Snapshot(ctx, SnapshotRequest{Workspace: "w", WaitStored: true})
			return err
		},
		func() error {
			_, err := y.h.Rollback(ctx, RollbackRequest{Workspace: "w", Snapshot: y.ids[0]})
			return err
		},
	} {
		y.sh(fmt.Sprintf(`for i in $(seq 20); do mkdir -p "$M/new%d/$i"; echo $i > "$M/new%d/$i/f"; done`, n, n))
		tree, err := y.h.openTree(ctx, y.h.catalog.Workspace("w"), nil, "")
		if err != nil {
			t.Fatal(err)
		}
		below, err := y.h.openLayers(ctx, y.h.catalog.Workspace("w").Base, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, err := y.h.GC(ctx, GCRequest{}); err != nil { // waits for the directories that nobody needs
			t.Fatal(err)
		}
		files, err := countAdded(ctx, below.lowers, tree.lowers)
		if err != nil || files != 41 {
			t.Errorf("%d: %d changes, want 41: %v", n, files, err)
		}
		below.close()
		tree.close()
	}
	if err := y.h.Settle(ctx); err != nil {
		t.Error(err)
	}
	// What was rolled back goes with the kernel's last FORGET of it, which comes by itself.
	left, err := y.h.Leftovers(ctx)
	for end := time.Now().Add(time.Minute); err == nil && len(left) > 0 && time.Now().Before(end); left, err = y.h.Leftovers(ctx) {
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestUnmountDuringRead unmounts a workspace that is being read: that waits for no reader, who still has it whole.
func TestUnmountDuringRead(t *testing.T) {
	ctx := t.Context()
	y := newHistory(t)
	y.grow(1)
	y.sh(`for i in $(seq 20); do echo $i > "$M/new$i"; done`)
	tree, err := y.h.openTree(ctx, y.h.catalog.Workspace("w"), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	if _, err := y.h.Unmount(ctx, UnmountRequest{Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	below, err := y.h.openLayers(ctx, y.h.catalog.Workspace("w").Base, "")
	if err != nil {
		t.Fatal(err)
	}
	defer below.close()
	if files, err := countAdded(ctx, below.lowers, tree.lowers); err != nil || files != 20 {
		t.Errorf("%d changes, want 20: %v", files, err)
	}
}

// countAdded counts what a tree has more than another.
func countAdded(ctx context.Context, from, to []*layers.Lower) (n int, err error) {
	cmp, err := layers.Compare(from, to)
	if err != nil {
		return 0, err
	}
	defer cmp.Close()
	for c, err := range cmp.Changes(ctx) {
		if err != nil {
			return n, err
		}
		if c.Kind == 'A' {
			n++
		}
	}
	return n, nil
}
