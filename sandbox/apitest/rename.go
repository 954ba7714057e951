package apitest

import (
	"strings"

	"snapfs/sandbox"
)

// testRename gives other names to a workspace that is mounted and in use, and to its snapshots.
func testRename(e *env) {
	at := e.up("w")
	e.sh(`echo one > "$1/f"`, at)
	s := e.snapshot("w", "s")
	e.create("other", "")
	e.snapshot("other", "t")
	rename := func(ref, name string) (sandbox.Object, error) {
		return e.api.Rename(e.Context(), sandbox.RenameRequest{Ref: ref, Name: name})
	}
	for _, bad := range []struct {
		ref, name string
		want      error
	}{
		{"w", "other", sandbox.ErrConflict},
		{"w", "t", sandbox.ErrConflict},
		{"w", "W", sandbox.ErrInvalid},
		{"w", "", sandbox.ErrInvalid},
		{"none", "x", sandbox.ErrNotFound},
		{"w:s", "", sandbox.ErrInvalid},
		{"w:s", "a/b", sandbox.ErrInvalid},
		{"w:s", "cafe", sandbox.ErrInvalid},
		{"w:s", "other:x", sandbox.ErrInvalid},
		{"w:s", "other", sandbox.ErrConflict},
		{"other:t", "t2", nil},
	} {
		_, err := rename(bad.ref, bad.name)
		if bad.want != nil {
			e.wants(err, bad.want)
		} else if err != nil {
			e.Error(err)
		}
	}
	_, err := e.api.Rename(e.Context(), sandbox.RenameRequest{Access: sandbox.Access{Session: "else"}, Ref: "w", Name: "x"})
	e.wants(err, sandbox.ErrRefused)
	o := must[sandbox.Object](e)(rename("other:t2", "other:t3"))
	equal(e, "snapshot", o.Snapshot.Name, "t3")

	o = must[sandbox.Object](e)(rename("w", "v"))
	equal(e, "name", o.Workspace.ID, "v")
	equal(e, "state", o.Workspace.State, sandbox.Mounted)
	equal(e, "mountpoint", o.Workspace.Mountpoint, at)
	e.sh(`echo two > "$1/f"`, at)
	second := e.snapshot("v", "second")
	equal(e, "parent", second.Parent, s.ID)
	show := func(ref string) *sandbox.Snapshot {
		e.Helper()
		return must[sandbox.Object](e)(e.api.Show(e.Context(), sandbox.RefRequest{Ref: ref})).Snapshot
	}
	check := func() {
		e.Helper()
		equal(e, "of", show("v:s").Workspace, "v")
		equal(e, "a ref from before", show(s.Ref.String()).ID, s.ID)
		_, err := e.api.Show(e.Context(), sandbox.RefRequest{Ref: strings.Replace(second.Ref.String(), `"v"`, `"w"`, 1)})
		e.wants(err, sandbox.ErrInvalid)
		_, err = e.api.Show(e.Context(), sandbox.RefRequest{Ref: "w"})
		e.wants(err, sandbox.ErrNotFound)
		equal(e, "contents", e.sh(`cat "$1/f"`, at), "two")
	}
	check()
	must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "v", Snapshot: "s"}))
	must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "v", Snapshot: "second"}))
	var log []string
	for _, name := range []string{"w", "v"} {
		for ev, err := range sandbox.AllEvents(e.Context(), e.api, sandbox.EventsRequest{Workspace: name}) {
			if err != nil {
				e.Fatal(err)
			}
			if ev.Kind == sandbox.EventRenamed || ev.Kind == sandbox.EventCreated {
				log = append(log, name+" "+string(ev.Kind)+" "+ev.Detail)
			}
		}
	}
	equal(e, "log", strings.Join(log, ", "), "w created , w renamed to v, v renamed from w")

	e.reopen(true)
	check()
	equal(e, "state", e.show("v").State, sandbox.Mounted)
	// The old name is free; that of a workspace whose snapshots are left is not.
	e.create("w", "")
	must[sandbox.Object](e)(rename("w", "x"))
	e.unmount("v")
	equal(e, "state", e.show("v").State, sandbox.Unmounted)
	if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: "v", Now: true}); err != nil {
		e.Error(err)
	}
	_, err = rename("x", "v")
	e.wants(err, sandbox.ErrConflict, "earlier workspace v", second.ID)
	other := sandbox.Access{Session: "else"}
	must[sandbox.Workspace](e)(e.api.Create(e.Context(), sandbox.CreateRequest{Access: other, Name: "y"}))
	_, err = e.api.Rename(e.Context(), sandbox.RenameRequest{Access: other, Ref: "y", Name: "v"})
	e.wants(err, sandbox.ErrConflict, "belong to another session")
	equal(e, "of one that is gone", show("v:s").ID, s.ID)
}
