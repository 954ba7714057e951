package sandbox_test

import (
	"errors"
	"path/filepath"
	"testing"

	"snapfs/sandbox"
)

// TestEventsExpire bounds the log of a home: whose a workspace is stays known when its first events are gone.
func TestEventsExpire(t *testing.T) {
	ctx := t.Context()
	h := openHome(t, filepath.Join(t.TempDir(), "home"), sandbox.Options{Events: sandbox.EventLimits{Keep: 20}})
	mine, yours := sandbox.Access{Session: "mine"}, sandbox.Access{Session: "yours"}
	if _, err := h.Create(ctx, sandbox.CreateRequest{Access: mine, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	snapshot := func(a sandbox.Access) { // no event comes behind it: that it is stored is one
		t.Helper()
		if _, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Access: a, Workspace: "w", WaitStored: true}); err != nil {
			t.Fatal(err)
		}
	}
	for range 40 {
		snapshot(mine)
	}
	yours.AllowCrossSession = true
	snapshot(yours)
	yours.AllowCrossSession = false
	if err := h.ExpireEvents(ctx); err != nil {
		t.Fatal(err)
	}
	read := func(a sandbox.Access) (kinds []sandbox.EventKind, err error) {
		err = h.Events(ctx, sandbox.EventsRequest{Access: a, Workspace: "w"}, func(e sandbox.Event) error {
			kinds = append(kinds, e.Kind)
			return nil
		})
		return kinds, err
	}
	kinds, err := read(mine)
	if err != nil || len(kinds) != 21 || kinds[0] != sandbox.EventCreated {
		t.Errorf("%v: %v", kinds, err)
	}
	if kinds, err := read(yours); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("another session sees %v: %v", kinds, err)
	}
}
