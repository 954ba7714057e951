package sandbox_test

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/sandbox"
)

func TestEvents(t *testing.T) {
	var logged bytes.Buffer
	dir := filepath.Join(t.TempDir(), "home")
	h := openHome(t, dir, sandbox.Options{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	ctx := t.Context()
	mine := sandbox.Access{Session: "mine"}
	yours := sandbox.Access{Session: "yours", AllowCrossSession: true}
	if _, err := h.Create(ctx, sandbox.CreateRequest{Access: mine, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Access: mine, Workspace: "w", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Branch(ctx, sandbox.RestoreRequest{Access: yours, Snapshot: s.ID}); err != nil {
		t.Fatal(err)
	}
	if err := h.Delete(ctx, sandbox.RefRequest{Access: mine, Ref: s.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Access: mine, Ref: "w", Now: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logged.String(), "level=WARN") || !strings.Contains(logged.String(), "session=yours") {
		t.Errorf("the crossing was not logged: %s", logged.String())
	}
	// The log outlives the process and the workspace.
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openHome(t, dir, sandbox.Options{})
	read := func(r sandbox.EventsRequest) (events []sandbox.Event, err error) {
		err = h.Events(ctx, r, func(e sandbox.Event) error { events = append(events, e); return nil })
		return events, err
	}
	events, err := read(sandbox.EventsRequest{Access: mine, Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range events {
		if e.Kind != sandbox.EventStored { // comes when it comes, or not at all before the snapshot is deleted
			got = append(got, string(e.Kind)+":"+e.Session+":"+e.Level)
		}
		if i > 0 && e.ID <= events[i-1].ID {
			t.Errorf("event %d is not in order", i)
		}
	}
	const want = "created:mine:info snapshotted:mine:info cross_session:yours:warn branched:yours:info snapshot_deleted:mine:info destroyed:mine:info"
	if g := strings.Join(got, " "); g != want {
		t.Errorf("got  %s\nwant %s", g, want)
	}
	if _, err := read(sandbox.EventsRequest{Access: sandbox.Access{Session: "yours"}, Workspace: "w"}); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("another session: got %v", err)
	}
	if _, err := read(sandbox.EventsRequest{Access: mine, Workspace: "unknown"}); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("unknown: got %v", err)
	}
}
