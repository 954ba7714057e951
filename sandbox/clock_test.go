package sandbox_test

import (
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"snapfs/sandbox"
)

// TestClockGoesBack sets the clock back while a home is open, and by more while it is closed: what is listed stays in
// order, cursors skip nothing, and times of expiry count by the clock as it is.
func TestClockGoesBack(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "home")
	var clock atomic.Int64 // in nanoseconds since 1970; also read in the background
	clock.Store(time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	open := func() *sandbox.Home {
		return openHome(t, dir, sandbox.WithClock(sandbox.Options{}, func() time.Time { return time.Unix(0, clock.Load()) }))
	}
	h := open()
	var ids []string
	snapshot := func(r sandbox.SnapshotRequest) sandbox.Snapshot {
		t.Helper()
		r.Workspace = "w"
		s, err := h.Snapshot(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
		return s
	}
	var cursor string
	told := 0
	events := func(least int) {
		t.Helper()
		n := 0
		err := h.Events(ctx, sandbox.EventsRequest{Workspace: "w", After: cursor}, func(e sandbox.Event) error {
			if e.ID <= cursor {
				t.Errorf("event %s after %s", e.ID, cursor)
			}
			cursor = e.ID
			n++
			return nil
		})
		told += n
		if err != nil || n < least {
			t.Errorf("%d new events after the cursor, want %d: %v", n, least, err)
		}
	}
	if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	first := snapshot(sandbox.SnapshotRequest{})
	limited := snapshot(sandbox.SnapshotRequest{TTL: time.Hour})
	events(3)
	// Only events come last before the home is closed.
	for range 50 {
		if _, err := h.Pause(ctx, sandbox.PauseRequest{Workspace: "w"}); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Resume(ctx, sandbox.RefRequest{Ref: "w"}); err != nil {
			t.Fatal(err)
		}
		clock.Add(-int64(time.Minute))
	}
	events(100)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	clock.Add(-3 * 365 * 24 * int64(time.Hour))
	h = open()
	second := snapshot(sandbox.SnapshotRequest{})
	events(1)
	if second.CreatedAt.After(first.CreatedAt) || !slices.IsSorted(ids) {
		t.Errorf("the second was taken at %s, the first at %s; ids %v", second.CreatedAt, first.CreatedAt, ids)
	}
	page, err := h.Snapshots(ctx, sandbox.ListRequest{Workspace: "w", After: limited.ID})
	if err != nil || len(page.Snapshots) != 1 || page.Snapshots[0].ID != second.ID {
		t.Errorf("after the cursor: %+v, %v", page, err)
	}
	if got, err := h.Prune(ctx, sandbox.PruneRequest{KeepLast: 2, DryRun: true}); err != nil || len(got.WouldDelete) != 1 || got.WouldDelete[0].ID != first.ID {
		t.Errorf("pruned by number: %+v, %v", got, err)
	}
	if got, err := h.Prune(ctx, sandbox.PruneRequest{OlderThan: time.Hour, DryRun: true}); err != nil || len(got.WouldDelete) != 0 {
		t.Errorf("pruned by age, of which nothing has any: %+v, %v", got, err)
	}
	// What has an hour to live is there until the clock says so.
	if got, err := h.GC(ctx, sandbox.GCRequest{}); err != nil || got.Expired != 0 {
		t.Errorf("expired three years before its time: %+v, %v", got, err)
	}
	clock.Store(limited.ExpiresAt.UnixNano())
	if got, err := h.GC(ctx, sandbox.GCRequest{}); err != nil || got.Expired != 1 {
		t.Errorf("not expired at its time: %+v, %v", got, err)
	}
	events(1)
}

// TestNamesakeAtOnce makes a workspace where one of its name was destroyed within the same instant, and one after the
// clock went back: neither may go to what the earlier ones left.
func TestNamesakeAtOnce(t *testing.T) {
	ctx := t.Context()
	var clock atomic.Int64
	clock.Store(time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC).UnixNano())
	h := openHome(t, filepath.Join(t.TempDir(), "home"), sandbox.WithClock(sandbox.Options{}, func() time.Time {
		return time.Unix(0, clock.Load())
	}))
	var left []string
	for range 3 {
		if _, err := h.Create(ctx, sandbox.CreateRequest{Name: "w"}); err != nil {
			t.Fatal(err)
		}
		for _, id := range left {
			if _, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: id}); !errors.Is(err, sandbox.ErrConflict) {
				t.Errorf("rollback to %s of an earlier workspace: %v", id, err)
			}
		}
		s, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Rollback(ctx, sandbox.RollbackRequest{Workspace: "w", Snapshot: s.ID}); err != nil {
			t.Error(err)
		}
		left = append(left, s.ID)
		if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Ref: "w", Now: true}); err != nil {
			t.Fatal(err)
		}
		if len(left) == 2 {
			clock.Add(-int64(time.Hour))
		}
	}
}
