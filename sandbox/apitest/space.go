package apitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"time"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// diff lists changes as "K path", sorted; b is "^" for the parent of a.
func (e *env) diff(a, b string) string {
	e.Helper()
	var lines []string
	r := sandbox.DiffRequest{A: a, B: b}
	if b == "^" {
		r.B, r.Parent = "", true
	}
	err := e.api.Diff(e.Context(), r, func(c sandbox.Change) error {
		line := c.Kind + " " + c.Path
		if c.OldPath != "" {
			line += " < " + c.OldPath
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		e.Errorf("diff %s %s: %v", a, b, err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func testDiff(e *env) {
	src := e.mkdir("src")
	e.sh(`cd "$1"; mkdir d; echo a > d/a; echo b > b; echo c > c; echo t > t`, src)
	e.create("w", src)
	at := e.mount("w")
	equal(e, "unchanged workspace", e.diff("w", ""), "")
	e.sh(`cd "$1"; echo more >> b; rm c; mkdir n; echo n > n/n; rm t; ln -s b t; printf odd > "$(printf 'o\377')"`, at)
	const want = "A n\nA n/n\nA o\xff\nD c\nM b\nT t"
	equal(e, "workspace against its base", e.diff("w", ""), want)
	e.snapshot("w", "one")
	equal(e, "snapshot against its parent", e.diff("one", "^"), want)
	equal(e, "workspace against its head", e.diff("w", ""), "")
	e.sh(`echo again >> "$1/d/a"`, at)
	e.stored("w", "two")
	equal(e, "two snapshots", e.diff("one", "two"), "M d/a")
	equal(e, "two snapshots, reversed", e.diff("two", "one"), "M d/a")
	equal(e, "a snapshot and a workspace", e.diff("two", "w"), "")
	e.unmount("w")
	equal(e, "an unmounted workspace", e.diff("one", "w"), "M d/a")
	equal(e, "a snapshot and its workspace now", e.diff("one", ""), "M d/a")
	e.create("v", "w:two")
	e.snapshot("v", "one")
	equal(e, "a name of the other side's workspace", e.diff("w", "one")+e.diff("one", "w"), "M d/aM d/a")
	equal(e, "the same in the other one", e.diff("w:two", "v:one"), "")
	e.wants(e.api.Diff(e.Context(), sandbox.DiffRequest{A: "w", B: "v", Parent: true}, nil), sandbox.ErrInvalid)
	if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: "v", Now: true}); err != nil {
		e.Error(err)
	}
	e.wants(e.api.Diff(e.Context(), sandbox.DiffRequest{A: "v:one"}, nil), sandbox.ErrNotFound, "v:one", "--parent")
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: "w:one"}); err != nil {
		e.Error(err)
	}
	equal(e, "snapshot against a deleted parent", e.diff("two", "^"), "M d/a")
	stop := errors.New("enough")
	if err := e.api.Diff(e.Context(), sandbox.DiffRequest{A: "two", Parent: true}, func(sandbox.Change) error { return stop }); !errors.Is(err, stop) {
		e.Errorf("an error of the callback: got %v", err)
	}
	e.wants(e.api.Diff(e.Context(), sandbox.DiffRequest{A: "two", B: "zzz"}, nil), sandbox.ErrNotFound, "zzz")
}

func testDiffEmpty(e *env) {
	e.create("w", "")
	equal(e, "an empty workspace", e.diff("w", ""), "")
	e.snapshot("w", "nothing")
	at := e.mount("w")
	equal(e, "an empty snapshot", e.diff("nothing", "^"), "")
	e.sh(`mkdir "$1/d"; echo x > "$1/d/x"`, at)
	const want = "A d\nA d/x"
	equal(e, "a workspace that was never frozen", e.diff("w", ""), want)
	equal(e, "an empty snapshot and a workspace", e.diff("nothing", "w"), want)
	e.unmount("w")
	equal(e, "unmounted", e.diff("w", ""), want)
	e.snapshot("w", "first")
	equal(e, "the first snapshot", e.diff("first", "^"), want)
	equal(e, "back to nothing", e.diff("first", "nothing"), "D d\nD d/x")
	file := filepath.Join(e.dir, "nothing.sqsh")
	must[sandbox.ExportResult](e)(e.api.Export(e.Context(), sandbox.ExportRequest{Snapshot: "nothing", Path: file}))
	equal(e, "entries of an empty image", e.sh(`unsquashfs -l "$1" | wc -l`, file), "1")
}

func testExport(e *env) {
	src := e.fixture("src")
	e.create("w", src)
	at := e.mount("w")
	e.sh(`echo late > "$1/late"; rm "$1/a/empty"; mv "$1/a/b" "$1/moved"`, at)
	want := e.walk(at)
	e.snapshot("w", "s")
	export := func(name string, r sandbox.ExportRequest) sandbox.ExportResult {
		e.Helper()
		r.Path, r.Format = filepath.Join(e.dir, name), "squashfs"
		if r.Snapshot == "" {
			r.Snapshot = "s"
		}
		res := must[sandbox.ExportResult](e)(e.api.Export(e.Context(), r))
		fi, err := os.Stat(r.Path)
		if err != nil || fi.Size() != res.Size || len(res.Digest) != 64 {
			e.Errorf("export %s: %+v, file %v, %v", name, res, fi, err)
		}
		return res
	}
	plain := export("plain.sqsh", sandbox.ExportRequest{Compression: "none"})
	second := export("again.sqsh", sandbox.ExportRequest{Compression: "none"})
	equal(e, "digest of a second export", second.Digest, plain.Digest)

	// The same tree with another history gives the same bytes.
	w := e.create("flat", filepath.Join(e.dir, "plain.sqsh"))
	e.snapshot(w.ID, "same-tree")
	flat := export("flat.sqsh", sandbox.ExportRequest{Snapshot: "same-tree", Compression: "none"})
	equal(e, "digest of the same tree with another history", flat.Digest, plain.Digest)
	e.same("created from the export", e.walk(e.mount("flat")), want, treewalk.Options{})

	for _, compression := range []string{"none", "zstd", "gzip", "xz", "lz4"} {
		name := compression + ".sqsh"
		export(name, sandbox.ExportRequest{Compression: compression})
		out := filepath.Join(e.dir, "out-"+compression)
		e.sh(`unsquashfs -no-progress -quiet -d "$1" "$2" >/dev/null`, out, filepath.Join(e.dir, name))
		e.same("unsquashfs of "+compression, e.walk(out), want, treewalk.Options{IgnoreMtime: true, IgnoreExtents: true})
	}
	loop := e.mkdir("loop")
	e.sh(`mount -t squashfs -o loop,ro "$1" "$2"`, filepath.Join(e.dir, "plain.sqsh"), loop)
	e.same("mounted by the kernel", e.walk(loop), want, treewalk.Options{IgnoreMtime: true, IgnoreExtents: true})
	e.sh(`umount "$1"`, loop)

	export("layer.sqsh", sandbox.ExportRequest{Layer: true})
	list := e.sh(`unsquashfs -ll "$1"`, filepath.Join(e.dir, "layer.sqsh"))
	if !strings.Contains(list, "/late") || strings.Contains(list, "script") || !strings.Contains(list, "c---------") {
		e.Errorf("the layer holds\n%s", list)
	}
	// An existing file is replaced, and nothing else is left beside.
	export("plain.sqsh", sandbox.ExportRequest{Compression: "zstd"})
	equal(e, "files left", e.sh(`ls -A "$1" | grep -c '^\.' || true`, e.dir), "0")
}

func testExportRefuses(e *env) {
	at := e.up("w")
	e.snapshot("w", "s")
	file := filepath.Join(e.dir, "x.sqsh")
	for _, bad := range []struct {
		r     sandbox.ExportRequest
		class error
		says  string
	}{
		{sandbox.ExportRequest{Path: "relative"}, sandbox.ErrInvalid, "absolute"},
		{sandbox.ExportRequest{Path: at + "/x"}, sandbox.ErrInvalid, "inside the mount"},
		{sandbox.ExportRequest{Path: e.home + "/x"}, sandbox.ErrInvalid, "home"},
		{sandbox.ExportRequest{Path: e.dir}, sandbox.ErrInvalid, e.dir},
		{sandbox.ExportRequest{Path: e.dir + "/no/x"}, sandbox.ErrNotFound, "no"},
		{sandbox.ExportRequest{Path: file, Format: "zip"}, sandbox.ErrInvalid, "zip"},
		{sandbox.ExportRequest{Path: file, Compression: "rar"}, sandbox.ErrInvalid, "rar"},
		{sandbox.ExportRequest{Path: file, Compression: "none", Level: 3}, sandbox.ErrInvalid, "3"},
		{sandbox.ExportRequest{Path: file, Snapshot: "unknown"}, sandbox.ErrNotFound, "unknown"},
	} {
		if bad.r.Snapshot == "" {
			bad.r.Snapshot = "s"
		}
		_, err := e.api.Export(e.Context(), bad.r)
		e.wants(err, bad.class, bad.says)
	}
	if _, err := os.Lstat(file); err == nil {
		e.Error("a refused export left a file")
	}
}

func testStats(e *env) {
	at := e.up("w")
	e.sh(`head -c 400000 /dev/urandom > "$1/base"`, at)
	e.stored("w", "a")
	e.sh(`head -c 200000 /dev/urandom > "$1/delta"`, at)
	e.stored("w", "b")
	stats := func(ref string) sandbox.Stats {
		e.Helper()
		return must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{Ref: ref}))
	}
	between := func(what string, got, low, high int64) {
		e.Helper()
		if got < low || got > high {
			e.Errorf("%s: got %d, want %d to %d", what, got, low, high)
		}
	}
	// Snapshot a's only layer lies below b's, and b's is the base of the workspace: nothing is anybody's alone.
	for _, ref := range []string{"a", "b", "w"} {
		st := stats(ref)
		equal(e, "unique of "+ref, st.Unique, 0)
		equal(e, "shared of "+ref, st.Shared, st.Stored)
		equal(e, "reclaimable of "+ref, st.Reclaimable, 0)
	}
	between("stored of a", stats("a").Stored, 400000, 440000)
	between("stored of b", stats("b").Stored, 600000, 660000)
	equal(e, "layers of b", stats("b").Layers, 2)
	// Without the workspace, b alone keeps its upper layer; a's is still shared.
	e.unmount("w")
	if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: "w", Now: true}); err != nil {
		e.Fatal(err)
	}
	between("unique of b without the workspace", stats("b").Unique, 200000, 240000)
	equal(e, "unique of a without the workspace", stats("a").Unique, 0)
	// Without a, b keeps both.
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: "a"}); err != nil {
		e.Fatal(err)
	}
	st := stats("b")
	between("unique of b alone", st.Unique, 600000, 660000)
	between("shared of b alone", st.Shared, 0, 1000)
	// With a branch, it alone keeps nothing any more; the branch's own changes are in its upper.
	br := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: "b"}))
	e.sh(`head -c 150000 /dev/urandom > "$1/own"`, e.mount(br.ID))
	equal(e, "unique of b with a branch", stats("b").Unique, 0)
	between("upper of the branch", stats(br.ID).Upper, 150000, 250000)
	all := stats("")
	equal(e, "workspaces", all.Workspaces, 1)
	equal(e, "snapshots", all.Snapshots, 1)
	equal(e, "layers", all.Layers, 2)
	between("stored", all.Stored, 600000, 700000)
	between("upper", all.Upper, 150000, 250000)
	equal(e, "unique and shared of the home", all.Unique+all.Shared, all.Stored)
	if all.Packs == 0 || all.Index == 0 {
		e.Errorf("packs %d, index %d: want more than none", all.Packs, all.Index)
	}
}

// testStatsExact deletes one snapshot or workspace after the other: each makes just as much reclaimable as its accounts
// said.
func testStatsExact(e *env) {
	src := e.mkdir("src")
	e.sh(`head -c 300000 /dev/urandom > "$1/base"`, src)
	e.create("w", src)
	at := e.mount("w")
	e.stored("w", "equal")
	e.stored("w", "equal-too")
	e.sh(`head -c 200000 /dev/urandom > "$1/one"; head -c 1000 /dev/urandom | dd of="$1/base" conv=notrunc bs=1 seek=5000 2>/dev/null`, at)
	e.stored("w", "one")
	br := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: "equal"}))
	// Equal contents in another layer belong to neither alone.
	e.sh(`cp "$1/one" "$2/copy"; head -c 100000 /dev/urandom > "$2/own"`, at, e.mount(br.ID))
	e.stored(br.ID, "branched")
	e.unmount(br.ID)
	e.unmount("w")
	stats := func(ref string) sandbox.Stats {
		e.Helper()
		st := must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{Ref: ref}))
		equal(e, "unique and shared of "+ref, st.Unique+st.Shared, st.Stored)
		return st
	}
	destroy := func(ctx context.Context, r sandbox.RefRequest) error {
		_, err := e.api.Destroy(ctx, sandbox.DestroyRequest{Ref: r.Ref, Now: true})
		return err
	}
	remove := func(ref string, call func(context.Context, sandbox.RefRequest) error, some bool) {
		e.Helper()
		own, before := stats(ref), stats("")
		if err := call(e.Context(), sandbox.RefRequest{Ref: ref}); err != nil {
			e.Error(err)
		}
		after := stats("")
		equal(e, "stored bytes that go with "+ref, before.Stored-after.Stored, own.Unique)
		equal(e, "has bytes of its own: "+ref, own.Unique > 0, some)
	}
	remove("equal", e.api.Delete, false)
	remove(br.ID, destroy, false)
	remove("branched", e.api.Delete, true)
	remove("w", destroy, false)
	remove("one", e.api.Delete, true)
	remove("equal-too", e.api.Delete, true)
	equal(e, "what is left", stats("").Stored, 0)
}

func testCollectAndCheck(e *env) {
	at := e.up("w")
	for i := range 3 {
		e.sh(`head -c 1000000 /dev/urandom > "$1/f"`, at)
		e.stored("w", fmt.Sprint("s", i))
	}
	before := must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{}))
	for i := range 2 {
		if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: fmt.Sprint("s", i)}); err != nil {
			e.Error(err)
		}
	}
	// Deltas below the newest snapshot still serve it; destroying everything frees everything.
	clean := func() {
		e.Helper()
		res := must[sandbox.CheckResult](e)(e.api.Check(e.Context(), sandbox.CheckRequest{ReadData: true}))
		for _, p := range res.Problems {
			e.Errorf("problem: %+v", p)
		}
	}
	clean()
	e.unmount("w")
	if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: "w", Now: true}); err != nil {
		e.Error(err)
	}
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: "s2"}); err != nil {
		e.Error(err)
	}
	res := must[sandbox.GCResult](e)(e.api.GC(e.Context(), sandbox.GCRequest{}))
	after := must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{}))
	if res.Freed < 2500000 || after.Packs > before.Packs-2500000 || after.Layers != 0 || after.Stored > 100000 {
		e.Errorf("collected %+v\nbefore %+v\nafter %+v", res, before, after)
	}
	e.eventually("the uppers are gone", func() bool {
		left, err := os.ReadDir(filepath.Join(e.home, "uppers"))
		return err == nil && len(left) == 0
	})
	clean()
}

func testRestart(e *env) {
	src := e.fixture("src")
	e.create("w", src)
	at := e.mount("w")
	e.sh(`echo one > "$1/f"`, at)
	s := e.snapshot("w", "sealed")
	e.sh(`echo two > "$1/f"`, at)
	want := e.walk(at)
	e.create("idle", "")
	other := e.mount("idle")
	e.unmount("idle")

	e.reopen(false)
	w := e.show("w")
	equal(e, "state", w.State, sandbox.Unmounted)
	equal(e, "head", w.Head, s.ID)
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "w"}))
	e.same("mounted again", e.walk(at), want, treewalk.Options{Ino: true})

	e.reopen(true)
	equal(e, "state", e.show("w").State, sandbox.Mounted)
	equal(e, "state of what was unmounted", e.show("idle").State, sandbox.Unmounted)
	e.same("remounted", e.walk(at), want, treewalk.Options{Ino: true})
	equal(e, "nothing at the other place", e.sh(`ls -A "$1"`, other), "")
	_, restored := e.restore("sealed")
	equal(e, "snapshot", e.sh(`cat "$1/f"`, restored), "one")
	e.eventually("storing goes on", func() bool {
		o := must[sandbox.Object](e)(e.api.Show(e.Context(), sandbox.RefRequest{Ref: s.ID}))
		return o.Snapshot.State == sandbox.Stored
	})
}

// testStatsOfSession accounts for two sessions that share a layer, and frees what one of them has: just as many bytes
// as were told.
func testStatsOfSession(e *env) {
	mine, yours := sandbox.Access{Session: "mine"}, sandbox.Access{Session: "yours", AllowCrossSession: true}
	ctx := e.Context()
	fill := func(a sandbox.Access, workspace, at string, bytes int) {
		e.Helper()
		must[sandbox.Workspace](e)(e.api.Mount(ctx, sandbox.MountRequest{Access: a, Workspace: workspace, Mountpoint: at, MakeMountpoint: true}))
		e.sh(`head -c "$2" /dev/urandom > "$1/$2"`, at, fmt.Sprint(bytes))
		must[sandbox.Snapshot](e)(e.api.Snapshot(ctx, sandbox.SnapshotRequest{Access: a, Workspace: workspace, WaitStored: true}))
		must[sandbox.Workspace](e)(e.api.Unmount(ctx, sandbox.UnmountRequest{Access: a, Workspace: workspace}))
	}
	must[sandbox.Workspace](e)(e.api.Create(ctx, sandbox.CreateRequest{Access: mine, Name: "w"}))
	fill(mine, "w", filepath.Join(e.dir, "w"), 3000000)
	s := must[sandbox.SnapshotPage](e)(e.api.Snapshots(ctx, sandbox.ListRequest{Access: mine})).Snapshots[0]
	b := must[sandbox.Workspace](e)(e.api.Branch(ctx, sandbox.RestoreRequest{Access: yours, Snapshot: s.ID}))
	fill(yours, b.ID, filepath.Join(e.dir, "b"), 2000000)
	of := func(a sandbox.Access) sandbox.Stats {
		e.Helper()
		return must[sandbox.Stats](e)(e.api.Stats(ctx, sandbox.StatsRequest{Access: a, OfSession: true}))
	}
	between := func(what string, got, low, high int64) {
		e.Helper()
		if got < low || got > high {
			e.Errorf("%s: got %d, want %d to %d", what, got, low, high)
		}
	}
	st := of(mine)
	equal(e, "session", st.Session, "mine")
	equal(e, "workspaces and snapshots", [2]int64{st.Workspaces, st.Snapshots}, [2]int64{1, 1})
	between("stored of mine", st.Stored, 3000000, 3100000)
	equal(e, "unique of mine, which yours stands on", st.Unique, 0)
	st = of(yours)
	equal(e, "layers of yours", st.Layers, 2)
	between("stored of yours", st.Stored, 5000000, 5100000)
	between("unique of yours", st.Unique, 2000000, 2100000)
	equal(e, "shared of yours", st.Shared, st.Stored-st.Unique)
	if st := of(sandbox.Access{Session: "none"}); !reflect.DeepEqual(st, sandbox.Stats{Session: "none"}) {
		e.Errorf("a session without anything: %+v", st)
	}
	_, err := e.api.Stats(ctx, sandbox.StatsRequest{Ref: "w", OfSession: true})
	e.wants(err, sandbox.ErrInvalid)
	_, err = e.api.Stats(ctx, sandbox.StatsRequest{Access: sandbox.Access{Session: "a b"}, OfSession: true})
	e.wants(err, sandbox.ErrInvalid)

	before := must[sandbox.Stats](e)(e.api.Stats(ctx, sandbox.StatsRequest{}))
	equal(e, "reclaimable before", before.Reclaimable, 0)
	if _, err := e.api.Destroy(ctx, sandbox.DestroyRequest{Access: yours, Ref: b.ID, Now: true}); err != nil {
		e.Fatal(err)
	}
	must[sandbox.PruneResult](e)(e.api.Prune(ctx, sandbox.PruneRequest{Access: sandbox.Access{Session: "yours"}, OlderThan: time.Nanosecond}))
	after := must[sandbox.Stats](e)(e.api.Stats(ctx, sandbox.StatsRequest{}))
	between("reclaimable after", after.Reclaimable, st.Reclaimable, st.Reclaimable+st.Reclaimable/50)
	got := must[sandbox.GCResult](e)(e.api.GC(ctx, sandbox.GCRequest{}))
	// Files of the store have room in advance, which a collection gives back, too, and end at blocks of the host.
	if least := st.Reclaimable - 512<<10; got.Freed < least || before.Packs < least {
		e.Errorf("freed %d of %d, want at least %d", got.Freed, before.Packs, least)
	}
	left := must[sandbox.Stats](e)(e.api.Stats(ctx, sandbox.StatsRequest{}))
	between("left", left.Reclaimable, 0, st.Reclaimable/50)
	equal(e, "stored, without what was yours", left.Stored, before.Stored-st.Unique)
}
