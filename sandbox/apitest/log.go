package apitest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"snapfs/sandbox"
)

func testPrune(e *env) {
	at := e.up("w")
	other := e.up("v")
	var ids []string
	for i := range 5 {
		e.sh(`echo "$2" > "$1/f"; echo "$2" > "$3/f"`, at, fmt.Sprint(i), other)
		ids = append(ids, e.snapshot("w", fmt.Sprintf("s%d", i)).ID)
		e.snapshot("v", "")
	}
	prune := func(r sandbox.PruneRequest) (string, int) {
		e.Helper()
		res := must[sandbox.PruneResult](e)(e.api.Prune(e.Context(), r))
		var names []string
		list, other := res.Deleted, res.WouldDelete
		if r.DryRun {
			list, other = other, list
		}
		equal(e, "snapshots of the other kind", len(other), 0)
		for _, s := range list {
			names = append(names, s.Name)
		}
		return strings.Join(names, " "), res.Kept
	}
	for _, bad := range []sandbox.PruneRequest{{}, {KeepLast: -1}, {KeepLast: 1, Workspace: "../w"}, {OlderThan: -time.Hour}} {
		_, err := e.api.Prune(e.Context(), bad)
		e.wants(err, sandbox.ErrInvalid)
	}
	gone, kept := prune(sandbox.PruneRequest{Workspace: "w", KeepLast: 2, DryRun: true})
	equal(e, "would go", gone, "s0 s1 s2")
	equal(e, "would stay", kept, 2)
	gone, _ = prune(sandbox.PruneRequest{Workspace: "w", KeepLast: 2, OlderThan: time.Hour})
	equal(e, "older than an hour", gone, "")
	gone, _ = prune(sandbox.PruneRequest{Access: sandbox.Access{Session: "unrelated"}, KeepLast: 1})
	equal(e, "of a session without snapshots", gone, "")
	gone, kept = prune(sandbox.PruneRequest{Workspace: "w", KeepLast: 2})
	equal(e, "gone", gone, "s0 s1 s2")
	equal(e, "kept", kept, 2)
	_, kept = prune(sandbox.PruneRequest{KeepLast: 2})
	equal(e, "kept of both workspaces", kept, 4)
	_, err := e.api.Show(e.Context(), sandbox.RefRequest{Ref: ids[0]})
	e.wants(err, sandbox.ErrNotFound)
	_, restored := e.restore("s4")
	equal(e, "what stays is whole", e.sh(`cat "$1/f"`, restored), "4")
}

// testPruneStays holds what no rule deletes: what workspaces are at, and what rollbacks have kept.
func testPruneStays(e *env) {
	at := e.up("w")
	e.snapshot("w", "release")
	rollback := func(to string) {
		e.Helper()
		e.sh(`date +%N >> "$1/f"`, at)
		r := must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: to}))
		if r.Kept == nil {
			e.Fatal("nothing was kept")
		}
	}
	prune := func(last int) string {
		e.Helper()
		res := must[sandbox.PruneResult](e)(e.api.Prune(e.Context(), sandbox.PruneRequest{Workspace: "w", KeepLast: last}))
		var names []string
		for _, s := range res.Deleted {
			names = append(names, cmp.Or(s.Name, "kept"))
		}
		return strings.Join(names, " ")
	}
	rollback("release")
	rollback("release")
	equal(e, "pruned while w is at its oldest snapshot", prune(1), "")
	_, branch := e.restore("release")
	e.snapshot("w", "a")
	e.sh(`date +%N >> "$1/f"`, at)
	e.snapshot("w", "b")
	rollback("b")
	equal(e, "pruned while a restored one is at release", prune(1), "a")
	page := must[sandbox.SnapshotPage](e)(e.api.Snapshots(e.Context(), sandbox.ListRequest{Workspace: "w"}))
	equal(e, "left", len(page.Snapshots), 5)
	equal(e, "the restored one is there", e.sh(`ls "$1"`, branch), "")
	_, err := e.api.Prune(e.Context(), sandbox.PruneRequest{Workspace: "nope", KeepLast: 1})
	e.wants(err, sandbox.ErrNotFound)
	e.create("new", "")
	must[sandbox.PruneResult](e)(e.api.Prune(e.Context(), sandbox.PruneRequest{Workspace: "new", KeepLast: 1}))
}

func testFollow(e *env) {
	e.create("w", "")
	ctx, cancel := context.WithTimeout(e.Context(), shellTime)
	defer cancel()
	kinds := make(chan string, 16)
	done := make(chan error, 1)
	go func() { // ends with ctx; awaited below
		done <- e.api.Events(ctx, sandbox.EventsRequest{Follow: true}, func(ev sandbox.Event) error {
			if ev.Kind != sandbox.EventStored { // comes when it comes
				kinds <- ev.Workspace + ":" + string(ev.Kind)
			}
			return nil
		})
	}()
	next := func(want string) {
		e.Helper()
		select {
		case got := <-kinds:
			equal(e, "event", got, want)
		case <-ctx.Done():
			e.Fatalf("the event %s does not come", want)
		}
	}
	next("w:created")
	s := e.snapshot("w", "s")
	next("w:snapshotted")
	for ev, err := range sandbox.AllEvents(e.Context(), e.api, sandbox.EventsRequest{Since: &s.CreatedAt}) {
		if err != nil || ev.Kind != sandbox.EventSnapshotted && ev.Kind != sandbox.EventStored {
			e.Errorf("since the snapshot: %+v, %v", ev, err)
		}
	}
	must[sandbox.Workspace](e)(e.api.Create(e.Context(), sandbox.CreateRequest{Access: sandbox.Access{Session: "other"}, Name: "hidden"}))
	must[sandbox.Workspace](e)(e.api.Create(e.Context(), sandbox.CreateRequest{Name: "x"}))
	next("x:created")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		e.Errorf("the end of following: got %v", err)
	}
	e.wants(e.api.Events(e.Context(), sandbox.EventsRequest{Workspace: "hidden"}, nil), sandbox.ErrRefused)
	e.wants(e.api.Events(e.Context(), sandbox.EventsRequest{After: "x"}, nil), sandbox.ErrInvalid)

	// The Go API makes the last element of a mountpoint, as the command does, and takes it away if the mount fails.
	at := filepath.Join(e.dir, "made")
	must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: "s", Mountpoint: at, MakeMountpoint: true}))
	_, err := e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w", Mountpoint: filepath.Join(at, "in"), MakeMountpoint: true})
	e.wants(err, sandbox.ErrConflict)
	_, err = e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: "s", Mountpoint: filepath.Join(e.dir, "no/where"), MakeMountpoint: true})
	e.wants(err, sandbox.ErrNotFound)
	if _, err := os.Lstat(filepath.Join(e.dir, "no")); err == nil {
		e.Error("a directory was left")
	}
}
