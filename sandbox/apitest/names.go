package apitest

import (
	"errors"
	"os"
	"strings"

	"snapfs/sandbox"
)

// testNames gives the same name to snapshots of several workspaces, and names them in every way.
func testNames(e *env) {
	for _, name := range []string{"w", "v"} {
		e.create(name, "")
	}
	a, b := e.snapshot("w", "built"), e.snapshot("v", "built")
	only := e.snapshot("v", "only")
	show := func(ref string) (string, error) {
		o, err := e.api.Show(e.Context(), sandbox.RefRequest{Ref: ref})
		if err != nil {
			return "", err
		}
		if o.Workspace != nil {
			return o.Workspace.ID, nil
		}
		return o.Snapshot.ID, nil
	}
	for ref, want := range map[string]string{
		"w:built": a.ID, "v:built": b.ID, "only": only.ID, "v:only": only.ID, "w:" + a.ID: a.ID, "w:" + a.ID[:35]: a.ID, "w": "w",
	} {
		equal(e, ref, must[string](e)(show(ref)), want)
	}
	for ref, says := range map[string]string{
		"w:only": "no snapshot", "w:" + b.ID: "no snapshot", "x:built": "workspace", "w:buil": "did you mean w:built?",
		"onyl": "did you mean v:only?", "wv": "did you mean", "W:built": "", ":built": "", "w:": "",
	} {
		_, err := show(ref)
		e.wants(err, sandbox.ErrNotFound, says)
	}
	_, err := show("built")
	e.wants(err, sandbox.ErrConflict, "w:built", "v:built")
	// The workspace is known from the call, also if it is one that was made from the snapshot.
	head := func(workspace, snapshot string) string {
		w := must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: workspace, Snapshot: snapshot}))
		return w.Head
	}
	equal(e, "its own", head("v", "built"), b.ID)
	br := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: "w:built"}))
	equal(e, "the one that it was made from", head(br.ID, "built"), a.ID)

	e.wants(e.api.Delete(e.Context(), sandbox.RefRequest{Ref: "w"}), sandbox.ErrNotFound, "that is a workspace", "destroy")
	e.wants(e.destroy("only"), sandbox.ErrNotFound, "that is a snapshot", "v:only")
	_, err = e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: br.ID + "x"})
	e.wants(err, sandbox.ErrNotFound, "did you mean "+br.ID)
}

// testNamesRefused tries names that could be taken for something else.
func testNamesRefused(e *env) {
	e.create("w", "")
	e.create("other", "")
	s := e.snapshot("w", "built")
	take := func(name string) error {
		_, err := e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: "w", Name: name})
		return err
	}
	for _, name := range []string{
		s.ID, strings.ToUpper(s.ID), s.ID[:4], s.ID[:13], s.ID[:14], strings.ReplaceAll(s.ID, "-", ""), "cafe", "8dca1ed",
		"w:built", "a:b", ":", "a/b", "/", ".", "..", "-x", "{x", " x", "x ", "a\tb",
	} {
		if err := take(name); !errors.Is(err, sandbox.ErrInvalid) {
			e.Errorf("%q: got %v", name, err)
		}
	}
	for _, name := range []string{"w", "other"} {
		e.wants(take(name), sandbox.ErrConflict, "name of a workspace")
	}
	for _, name := range []string{"2026-11-23", "abc", "v1.2", "before upgrade", "größer", "~x", "v-8dca1ed"} {
		if err := take(name); err != nil {
			e.Errorf("%q: %v", name, err)
		}
	}
	// A workspace that would be taken for a snapshot. That of another session cannot be.
	_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: "built"})
	e.wants(err, sandbox.ErrConflict, "w:built")
	for what, call := range map[string]func() (sandbox.Workspace, error){
		"restore": func() (sandbox.Workspace, error) {
			return e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Name: "built"})
		},
		"fork": func() (sandbox.Workspace, error) {
			return e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w", Name: "built"})
		},
	} {
		if _, err := call(); !errors.Is(err, sandbox.ErrConflict) {
			e.Errorf("%s: got %v", what, err)
		}
	}
	must[sandbox.Workspace](e)(e.api.Create(e.Context(), sandbox.CreateRequest{Access: sandbox.Access{Session: "else"}, Name: "built"}))
	e.create("cafe", "")
	for _, name := range []string{s.ID, s.ID[:13], s.ID[:4]} { // by which a snapshot is meant
		_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: name})
		e.wants(err, sandbox.ErrInvalid, "put a word before it")
		_, err = e.api.Rename(e.Context(), sandbox.RenameRequest{Ref: "other", Name: name})
		e.wants(err, sandbox.ErrInvalid, "put a word before it")
	}
	got := must[sandbox.Object](e)(e.api.Show(e.Context(), sandbox.RefRequest{Ref: "built"}))
	equal(e, "one's own", got.Snapshot.ID, s.ID)
}

// testNamesGiven names what restore, branch and fork make.
func testNamesGiven(e *env) {
	e.create("w", "")
	s := e.snapshot("w", "")
	r := must[sandbox.Workspace](e)(e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Name: "r"}))
	b := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Name: "b"}))
	f := must[sandbox.Workspace](e)(e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w", Name: "f"}))
	equal(e, "names", r.ID+b.ID+f.ID, "rbf")
	for name, want := range map[string]error{"r": sandbox.ErrConflict, "w": sandbox.ErrConflict, "W": sandbox.ErrInvalid, "a:b": sandbox.ErrInvalid} {
		_, err := e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Name: name})
		e.wants(err, want)
		_, err = e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w", Name: name})
		e.wants(err, want)
	}
}

// testNamesRead reads what can be meant in two ways. One that belongs to another session is none of them, and what is not
// used is not audited.
func testNamesRead(e *env) {
	yours, mine := sandbox.Access{Session: "yours"}, sandbox.Access{Session: "mine", AllowCrossSession: true}
	dir := e.mkdir("src")
	e.sh(`echo contents > "$1/f"`, dir)
	must[sandbox.Workspace](e)(e.api.Create(e.Context(), sandbox.CreateRequest{Access: yours, Name: "w", Source: dir}))
	must[sandbox.Snapshot](e)(e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Access: mine, Workspace: "w", Name: "f"}))
	must[sandbox.Snapshot](e)(e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Access: mine, Workspace: "w", Name: "g"}))
	read := func(a sandbox.Access, ref string) (string, error) {
		var text strings.Builder
		_, err := e.api.ReadFile(e.Context(), sandbox.FilesRequest{Access: a, Ref: ref}, &text)
		return text.String(), err
	}
	equal(e, "the file", must[string](e)(read(yours, "w:f")), "contents\n")
	_, err := read(yours, "w:g")
	e.wants(err, sandbox.ErrNotFound, "no path")
	crossings := func() (n int) {
		for ev, err := range sandbox.AllEvents(e.Context(), e.api, sandbox.EventsRequest{Access: yours, Workspace: "w"}) {
			if err != nil {
				e.Fatal(err)
			}
			if ev.Kind == sandbox.EventCrossSession {
				n++
			}
		}
		return n
	}
	before := crossings()
	_, err = read(mine, "w:f")
	e.wants(err, sandbox.ErrConflict, "several ways")
	equal(e, "crossings, of what is not used", crossings(), before)
	equal(e, "the file, by another session", must[string](e)(read(mine, "w:/f")), "contents\n")
	equal(e, "crossings", crossings(), before+1)
}

// testPlaces names workspaces by where they were mounted. Paths inside a mount are for other processes than this one,
// which serves it.
func testPlaces(e *env) {
	at := e.up("w")
	e.sh(`echo x > "$1/f"`, at)
	e.unmount("w")
	e.sh(`mkdir "$1-d"; ln -s "$1-d" "$1-link"`, at)
	for _, path := range []string{at, at + "/", at + "/.", e.dir + "/../" + e.dir[strings.LastIndexByte(e.dir, '/')+1:] + "/mnt-w", at + "-link/../mnt-w"} {
		w := must[sandbox.Workspace](e)(e.api.Locate(e.Context(), sandbox.LocateRequest{Path: path}))
		equal(e, path, w.ID, "w")
	}
	s := must[sandbox.Snapshot](e)(e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: at, Name: "s"}))
	equal(e, "of", s.Workspace, "w")
	got := must[sandbox.Object](e)(e.api.Show(e.Context(), sandbox.RefRequest{Ref: at + ":s"}))
	equal(e, "PATH:NAME", got.Snapshot.ID, s.ID)
	show := func(a sandbox.Access, path string) error {
		_, err := e.api.Show(e.Context(), sandbox.RefRequest{Access: a, Ref: path})
		return err
	}
	e.wants(show(sandbox.Access{}, e.dir), sandbox.ErrNotFound, "in no workspace")
	e.wants(show(sandbox.Access{}, at+"/missing"), sandbox.ErrNotFound)
	e.wants(show(sandbox.Access{}, at+":t"), sandbox.ErrNotFound, "no snapshot")
	e.wants(show(sandbox.Access{Session: "else"}, at), sandbox.ErrRefused, "another session")
	// Another one that was mounted there.
	e.create("v", "")
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "v", Mountpoint: at}))
	must[sandbox.Workspace](e)(e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: "v"}))
	e.wants(show(sandbox.Access{}, at), sandbox.ErrConflict, "v, w")
	if err := os.Remove(at + "-link"); err != nil {
		e.Error(err)
	}
}
