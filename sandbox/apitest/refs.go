package apitest

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"snapfs/sandbox"
)

func testReferences(e *env) {
	at := e.up("w")
	e.create("v", "")
	e.sh(`echo x > "$1/f"`, at)
	a, b := e.snapshot("w", "same"), e.snapshot("v", "same")
	c := e.snapshot("w", "only")
	show := func(ref string) (sandbox.Object, error) { return e.api.Show(e.Context(), sandbox.RefRequest{Ref: ref}) }
	for _, ref := range []string{c.ID, "only", c.ID[:len(c.ID)-1]} {
		o := must[sandbox.Object](e)(show(ref))
		if o.Snapshot == nil || o.Workspace != nil || o.Snapshot.ID != c.ID {
			e.Errorf("show %s: got %+v", ref, o)
		}
	}
	_, err := show("same")
	e.wants(err, sandbox.ErrConflict, "w:same", "v:same")
	_, err = show(a.ID[:4])
	e.wants(err, sandbox.ErrConflict, a.ID, b.ID, c.ID)
	_, err = show(a.ID[:3])
	e.wants(err, sandbox.ErrNotFound)
	_, err = show("018f0000-0000-7000-8000-000000000000")
	e.wants(err, sandbox.ErrNotFound)
	for _, bad := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 10000)} {
		_, err := show(bad)
		e.wants(err, sandbox.ErrInvalid)
		_, err = e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: bad})
		e.wants(err, sandbox.ErrInvalid)
		e.wants(e.api.Delete(e.Context(), sandbox.RefRequest{Ref: bad}), sandbox.ErrInvalid)
	}
	for _, unknown := range []string{"../..", "no such", "W"} {
		_, err := show(unknown)
		e.wants(err, sandbox.ErrNotFound)
		_, err = e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: unknown})
		e.wants(err, sandbox.ErrNotFound)
	}
	_, err = e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: "w"})
	e.wants(err, sandbox.ErrNotFound) // a workspace is no snapshot
}

// testRefs gives the refs that other programs keep, whole and tampered with.
func testRefs(e *env) {
	at := e.up("w")
	e.sh(`echo x > "$1/f"`, at)
	s := e.snapshot("w", "s")
	e.create("v", "")
	text := s.Ref.String()
	equal(e, "ref", text, fmt.Sprintf(`{"providerId":"snapfs","ref":{"snapshot":"%s","workspace":"w"}}`, s.ID))
	w := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: text}))
	equal(e, "origin", w.Origin, s.ID)
	// What others have put inside goes through unharmed.
	more := fmt.Sprintf(`{"ref":{"workspace":"w","agent":{"step":[1,2]},"snapshot":"%s"},"providerId":"snapfs"}`, s.ID)
	r, err := sandbox.ParseRef(more)
	if err != nil {
		e.Fatal(err)
	}
	equal(e, "with fields of others", r.String(), fmt.Sprintf(`{"providerId":"snapfs","ref":{"agent":{"step":[1,2]},"snapshot":"%s","workspace":"w"}}`, s.ID))
	must[sandbox.Workspace](e)(e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: more}))
	must[sandbox.Workspace](e)(e.api.Create(e.Context(), sandbox.CreateRequest{Name: "from-ref", Source: text}))
	with := func(old, with string) string { return strings.Replace(text, old, with, 1) }
	for _, bad := range []string{
		"{", "{}", "{}{}", text + text, text + "x", with(`{"p`, `{"extra":1,"p`), with("providerId", "provider_id"), with("providerId", "PROVIDERID"),
		with("snapfs", "other"), with(s.ID, "../../etc"), with(s.ID, s.ID[:8]), with(s.ID, strings.ToUpper(s.ID)), with(`"w"`, `"../w"`),
		with(`"w"`, `"v"`), with(`"w"`, `"W"`), with(`"w"`, `"a/b"`), with(`"w"`, `"a\u0000b"`), with(`"w"`, `null`), with(`"w"`, `7`), with(`,"workspace":"w"`, ""),
		with(`"ref":{`, `"ref":[{`), `{"providerId":"snapfs","ref":null}`, `{"providerId":"snapfs"}`,
		with(`"w"`, `"w","x":"`+strings.Repeat("x", 10000)+`"`), "{" + strings.Repeat("x", 10000), "{\x00}", "{\xff}",
	} {
		_, err := e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: bad})
		if !errors.Is(err, sandbox.ErrInvalid) {
			e.Errorf("%.200q: got %v", bad, err)
		}
		if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: bad}); !errors.Is(err, sandbox.ErrInvalid) {
			e.Errorf("delete %.200q: got %v", bad, err)
		}
	}
	unrelated := sandbox.Access{Session: "unrelated"}
	_, err = e.api.Restore(e.Context(), sandbox.RestoreRequest{Access: unrelated, Snapshot: text})
	e.wants(err, sandbox.ErrRefused)
	_, err = e.api.Restore(e.Context(), sandbox.RestoreRequest{Access: unrelated, Snapshot: with(`"w"`, `"v"`)})
	e.wants(err, sandbox.ErrRefused) // it says nothing of what is whose
	_, err = e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: "w", Name: "{x"})
	e.wants(err, sandbox.ErrInvalid, "brace")
	for range 2 {
		if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: text}); err != nil {
			e.Error(err)
		}
	}
	_, err = e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: text})
	e.wants(err, sandbox.ErrNotFound)
}

func testSessions(e *env) {
	mine, yours := sandbox.Access{Session: "mine"}, sandbox.Access{Session: "yours"}
	both := sandbox.Access{Session: "yours", AllowCrossSession: true}
	ctx := e.Context()
	must[sandbox.Workspace](e)(e.api.Create(ctx, sandbox.CreateRequest{Access: mine, Name: "w"}))
	s := must[sandbox.Snapshot](e)(e.api.Snapshot(ctx, sandbox.SnapshotRequest{Access: mine, Workspace: "w", Name: "s"}))
	equal(e, "owner", s.Session, "mine")

	at := e.mkdir("m")
	for what, call := range map[string]func(a sandbox.Access) error{
		"mount": func(a sandbox.Access) error {
			_, err := e.api.Mount(ctx, sandbox.MountRequest{Access: a, Workspace: "w", Mountpoint: at})
			return err
		},
		"unmount": func(a sandbox.Access) error {
			_, err := e.api.Unmount(ctx, sandbox.UnmountRequest{Access: a, Workspace: "w"})
			return err
		},
		"snapshot": func(a sandbox.Access) error {
			_, err := e.api.Snapshot(ctx, sandbox.SnapshotRequest{Access: a, Workspace: "w"})
			return err
		},
		"restore": func(a sandbox.Access) error {
			_, err := e.api.Restore(ctx, sandbox.RestoreRequest{Access: a, Snapshot: s.ID})
			return err
		},
		"branch by name": func(a sandbox.Access) error {
			_, err := e.api.Branch(ctx, sandbox.RestoreRequest{Access: a, Snapshot: "s"})
			return err
		},
		"fork": func(a sandbox.Access) error {
			_, err := e.api.Fork(ctx, sandbox.ForkRequest{Access: a, Workspace: "w"})
			return err
		},
		"create from": func(a sandbox.Access) error {
			_, err := e.api.Create(ctx, sandbox.CreateRequest{Access: a, Name: "x", Source: s.ID})
			return err
		},
		"show workspace": func(a sandbox.Access) error {
			_, err := e.api.Show(ctx, sandbox.RefRequest{Access: a, Ref: "w"})
			return err
		},
		"show snapshot": func(a sandbox.Access) error {
			_, err := e.api.Show(ctx, sandbox.RefRequest{Access: a, Ref: s.ID[:30]})
			return err
		},
		"diff": func(a sandbox.Access) error {
			return e.api.Diff(ctx, sandbox.DiffRequest{Access: a, A: s.ID}, func(sandbox.Change) error { return nil })
		},
		"stats": func(a sandbox.Access) error {
			_, err := e.api.Stats(ctx, sandbox.StatsRequest{Access: a, Ref: "w"})
			return err
		},
		"export": func(a sandbox.Access) error {
			_, err := e.api.Export(ctx, sandbox.ExportRequest{Access: a, Snapshot: s.ID, Path: e.dir + "/x.sqsh"})
			return err
		},
		"extract": func(a sandbox.Access) error {
			_, err := e.api.Extract(ctx, sandbox.ExtractRequest{Access: a, Snapshot: s.ID, Path: e.dir + "/x"})
			return err
		},
		"delete": func(a sandbox.Access) error { return e.api.Delete(ctx, sandbox.RefRequest{Access: a, Ref: s.ID}) },
		"destroy": func(a sandbox.Access) error {
			_, err := e.api.Destroy(ctx, sandbox.DestroyRequest{Access: a, Ref: "w", Now: true})
			return err
		},
	} {
		if err := call(yours); !errors.Is(err, sandbox.ErrRefused) {
			e.Errorf("%s by another session: got %v, want refused", what, err)
		}
	}
	w := must[sandbox.WorkspacePage](e)(e.api.Workspaces(ctx, sandbox.ListRequest{Access: yours}))
	p := must[sandbox.SnapshotPage](e)(e.api.Snapshots(ctx, sandbox.ListRequest{Access: yours}))
	equal(e, "foreign objects listed", len(w.Workspaces)+len(p.Snapshots), 0)
	w = must[sandbox.WorkspacePage](e)(e.api.Workspaces(ctx, sandbox.ListRequest{Access: both}))
	p = must[sandbox.SnapshotPage](e)(e.api.Snapshots(ctx, sandbox.ListRequest{Access: both}))
	equal(e, "objects listed with leave", len(w.Workspaces)+len(p.Snapshots), 2)

	r := must[sandbox.Workspace](e)(e.api.Restore(ctx, sandbox.RestoreRequest{Access: both, Snapshot: "s"}))
	equal(e, "owner of what was restored", r.Session, "yours")
	// A name of one's own is not made ambiguous by those of other sessions.
	o := must[sandbox.Snapshot](e)(e.api.Snapshot(ctx, sandbox.SnapshotRequest{Access: yours, Workspace: r.ID, Name: "s"}))
	got := must[sandbox.Object](e)(e.api.Show(ctx, sandbox.RefRequest{Access: yours, Ref: "s"}))
	equal(e, "own snapshot", got.Snapshot.ID, o.ID)
	_, err := e.api.Show(ctx, sandbox.RefRequest{Access: sandbox.Access{Session: "a b"}, Ref: "s"})
	e.wants(err, sandbox.ErrInvalid)
	if err := e.api.Delete(ctx, sandbox.RefRequest{Access: both, Ref: s.ID}); err != nil {
		e.Error(err)
	}
}

// joined has the names of all items, with blanks between them.
func joined[T any](e *env, items iter.Seq2[T, error], name func(T) string) string {
	e.Helper()
	var all []string
	for item, err := range items {
		if err != nil {
			e.Fatal(err)
		}
		all = append(all, name(item))
	}
	return strings.Join(all, " ")
}

func testLists(e *env) {
	ctx := e.Context()
	for i := range 5 {
		e.create(fmt.Sprintf("w%d", 4-i), "")
	}
	var all []string
	for after, more := "", true; more; {
		page := must[sandbox.WorkspacePage](e)(e.api.Workspaces(ctx, sandbox.ListRequest{After: after, Limit: 2}))
		for _, w := range page.Workspaces {
			all = append(all, w.ID)
		}
		after, more = all[len(all)-1], page.More
	}
	equal(e, "workspaces", strings.Join(all, " "), "w0 w1 w2 w3 w4")
	for _, limit := range []int{0, 1, 2, 5} {
		r := sandbox.ListRequest{Limit: limit, After: "w0"}
		name := func(w sandbox.Workspace) string { return w.ID }
		equal(e, "workspaces of all pages", joined(e, sandbox.AllWorkspaces(ctx, e.api, r), name), "w1 w2 w3 w4")
		for after, want := range map[string]string{"": "w0 w1 w2 w3 w4", "w2": "w3 w4", "w4": ""} {
			r.NewestFirst, r.After = true, after
			equal(e, "the newest first, of all pages", joined(e, sandbox.AllWorkspaces(ctx, e.api, r), name), want)
		}
	}
	made := e.show("w2").CreatedAt.Format(time.RFC3339Nano)
	r := sandbox.ListRequest{NewestFirst: true, After: made + "/zzz"} // which was made in the same moment
	equal(e, "after one that is gone", joined(e, sandbox.AllWorkspaces(ctx, e.api, r), func(w sandbox.Workspace) string { return w.ID }), "w2 w3 w4")

	var ids []string
	for range 103 {
		ids = append(ids, must[sandbox.Snapshot](e)(e.api.Snapshot(ctx, sandbox.SnapshotRequest{Workspace: "w1", NoSync: true})).ID)
	}
	other := e.snapshot("w2", "")
	list := func(r sandbox.ListRequest) ([]string, bool) {
		page := must[sandbox.SnapshotPage](e)(e.api.Snapshots(ctx, r))
		var got []string
		for _, s := range page.Snapshots {
			got = append(got, s.ID)
		}
		return got, page.More
	}
	check := func(what string, r sandbox.ListRequest, want []string, wantMore bool) {
		e.Helper()
		got, more := list(r)
		if strings.Join(got, " ") != strings.Join(want, " ") || more != wantMore {
			e.Errorf("%s: got %d (%v), want %d (%v)", what, len(got), more, len(want), wantMore)
		}
	}
	name := func(s sandbox.Snapshot) string { return s.ID }
	equal(e, "snapshots of all pages", joined(e, sandbox.AllSnapshots(ctx, e.api, sandbox.ListRequest{}), name),
		strings.Join(append(ids[:103:103], other.ID), " "))
	for s, err := range sandbox.AllSnapshots(ctx, e.api, sandbox.ListRequest{Limit: 2}) {
		if err != nil {
			e.Error(err)
		}
		equal(e, "the first snapshot", s.ID, ids[0])
		break
	}
	for s, err := range sandbox.AllSnapshots(ctx, e.api, sandbox.ListRequest{Access: sandbox.Access{Session: "a b"}}) {
		equal(e, "no snapshot", s.ID, "")
		e.wants(err, sandbox.ErrInvalid)
	}
	check("newest first", sandbox.ListRequest{NewestFirst: true, Limit: 2}, []string{other.ID, ids[102]}, true)
	check("newest first, the rest", sandbox.ListRequest{NewestFirst: true, After: ids[1]}, ids[:1], false)
	check("newest first, of a workspace", sandbox.ListRequest{NewestFirst: true, Workspace: "w2"}, []string{other.ID}, false)
	check("default limit", sandbox.ListRequest{}, ids[:100], true)
	check("clamped limit", sandbox.ListRequest{Limit: 100000}, ids[:100], true)
	check("the rest", sandbox.ListRequest{After: ids[99]}, append(ids[100:103:103], other.ID), false)
	check("of a workspace", sandbox.ListRequest{After: ids[99], Workspace: "w1", Limit: 3}, ids[100:], false)
	check("exactly one page", sandbox.ListRequest{After: ids[101], Workspace: "w1", Limit: 1}, ids[102:], false)
	if err := e.api.Delete(ctx, sandbox.RefRequest{Ref: ids[99]}); err != nil {
		e.Error(err)
	}
	check("after a deleted one", sandbox.ListRequest{After: ids[99], Limit: 1}, ids[100:101], true)
	check("after the last", sandbox.ListRequest{After: other.ID}, nil, false)
	if _, err := e.api.Destroy(ctx, sandbox.DestroyRequest{Ref: "w2", Now: true}); err != nil {
		e.Error(err)
	}
	page := must[sandbox.WorkspacePage](e)(e.api.Workspaces(ctx, sandbox.ListRequest{After: "w2"}))
	equal(e, "workspaces after a destroyed one", len(page.Workspaces), 2)
	check("of a workspace that is gone", sandbox.ListRequest{Workspace: "w2"}, []string{other.ID}, false)
	check("of one without snapshots", sandbox.ListRequest{Workspace: "w3"}, nil, false)
	check("after the last of one that is gone", sandbox.ListRequest{Workspace: "w2", After: other.ID}, nil, false)
	for _, test := range []struct {
		r    sandbox.ListRequest
		want error
		says string
	}{
		{sandbox.ListRequest{Workspace: "nope"}, sandbox.ErrNotFound, "nope"},
		{sandbox.ListRequest{Workspace: "w1", Access: sandbox.Access{Session: "strange"}}, sandbox.ErrRefused, "--allow-cross-session"},
	} {
		_, err := e.api.Snapshots(ctx, test.r)
		e.wants(err, test.want, test.says)
		_, err = e.api.Workspaces(ctx, test.r)
		e.wants(err, test.want)
	}
	for _, bad := range []sandbox.ListRequest{{Limit: -1}, {After: "../x"}, {After: "../x", NewestFirst: true}, {Workspace: "W"}} {
		_, err := e.api.Snapshots(ctx, bad)
		e.wants(err, sandbox.ErrInvalid)
		_, err = e.api.Workspaces(ctx, bad)
		e.wants(err, sandbox.ErrInvalid)
	}
}

func testDelete(e *env) {
	at := e.up("w")
	e.sh(`head -c 300000 /dev/urandom > "$1/f"`, at)
	a := e.stored("w", "a")
	e.sh(`echo > "$1/f"`, at)
	b := e.stored("w", "b")
	_, restored := e.restore("a")
	sum := e.sh(`sha256sum < "$1/f"`, restored)
	del := func(ref string) error { return e.api.Delete(e.Context(), sandbox.RefRequest{Ref: ref}) }
	for range 2 {
		if err := del(a.ID); err != nil {
			e.Errorf("delete: %v", err)
		}
	}
	e.wants(del("a"), sandbox.ErrNotFound)
	_, err := e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: a.ID})
	e.wants(err, sandbox.ErrNotFound)
	must[sandbox.GCResult](e)(e.api.GC(e.Context(), sandbox.GCRequest{}))
	equal(e, "what was restored", e.sh(`sha256sum < "$1/f"`, restored), sum)
	if err := del("b"); err != nil {
		e.Error(err)
	}
	equal(e, "the workspace", e.sh(`cat "$1/f"`, at), "")
	_, err = e.api.Show(e.Context(), sandbox.RefRequest{Ref: b.ID})
	e.wants(err, sandbox.ErrNotFound)
	// The name is free again.
	e.snapshot("w", "a")
	res := must[sandbox.CheckResult](e)(e.api.Check(e.Context(), sandbox.CheckRequest{ReadData: true}))
	equal(e, "problems", len(res.Problems), 0)
}

func testDestroy(e *env) {
	at := e.up("w")
	e.sh(`echo x > "$1/f"`, at)
	s := e.snapshot("w", "")
	destroy := func() error { return e.destroy("w") }
	e.wants(destroy(), sandbox.ErrConflict, at)
	e.unmount("w")
	if err := destroy(); err != nil {
		e.Fatal(err)
	}
	e.wants(destroy(), sandbox.ErrNotFound)
	_, restored := e.restore(s.ID)
	equal(e, "snapshot of a destroyed workspace", e.sh(`cat "$1/f"`, restored), "x")
	// The name is free, and what comes under it is new.
	second := e.up("w2")
	e.create("w", "")
	e.mount("w")
	equal(e, "new workspaces", e.sh(`ls -A "$1" "$2" | grep -v : || true`, second, e.dir+"/mnt-w"), "")
}

func testExpiry(e *env) {
	e.create("w", "")
	var s sandbox.Snapshot
	var soon time.Time
	err := sandbox.ErrInvalid
	for after := 100 * time.Millisecond; errors.Is(err, sandbox.ErrInvalid) && after < time.Minute; after *= 2 { // on a slow machine it has passed
		soon = time.Now().Add(after)
		s, err = e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: "w", Name: "s", ExpiresAt: &soon})
	}
	if err != nil {
		e.Fatal(err)
	}
	kept := must[sandbox.Snapshot](e)(e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: "w", TTL: time.Hour}))
	time.Sleep(time.Until(soon) + 10*time.Millisecond)
	_, err = e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID})
	e.wants(err, sandbox.ErrInvalid, "expired")
	_, err = e.api.Create(e.Context(), sandbox.CreateRequest{Name: "x", Source: s.ID})
	e.wants(err, sandbox.ErrInvalid, "expired")
	got := must[sandbox.GCResult](e)(e.api.GC(e.Context(), sandbox.GCRequest{}))
	equal(e, "expired", got.Expired, 1)
	_, err = e.api.Show(e.Context(), sandbox.RefRequest{Ref: s.ID})
	e.wants(err, sandbox.ErrNotFound)
	must[sandbox.Object](e)(e.api.Show(e.Context(), sandbox.RefRequest{Ref: kept.ID}))
}
