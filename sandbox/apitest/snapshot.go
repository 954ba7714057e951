package apitest

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

func testSnapshotReverts(e *env) {
	src := e.fixture("src")
	e.create("w", src)
	at := e.mount("w")
	e.sh(`echo first > "$1/a/file"; mkdir "$1/new"; echo x > "$1/new/x"; rm -r "$1/private"`, at)
	want := e.walk(at)
	s := e.snapshot("w", "one")
	e.same("the workspace after the seal", e.walk(at), want, treewalk.Options{Ino: true})
	e.sh(`echo second > "$1/a/file"; echo late > "$1/late"; rm -r "$1/new"; mkdir "$1/private"; chmod 700 "$1/a"`, at)
	changed := e.walk(at)
	_, restored := e.restore("one")
	e.same("restored while sealed or being stored", e.walk(restored), want, treewalk.Options{Ino: true})
	s2 := e.stored("w", "two")
	equal(e, "parent", s2.Parent, s.ID)
	equal(e, "state", s2.State, sandbox.Stored)
	e.same("restored, beneath it the images", e.walk(restored), want, treewalk.Options{Ino: true})
	e.same("the workspace, beneath it the images", e.walk(at), changed, treewalk.Options{Ino: true})
	_, fromImages := e.restore("one")
	e.same("restored from images", e.walk(fromImages), want, treewalk.Options{Ino: true})
	_, two := e.restore("two")
	e.same("the second snapshot", e.walk(two), changed, treewalk.Options{Ino: true})
}

func testSnapshotWhileOpen(e *env) {
	at := e.up("w")
	// A program that keeps a file open, writes a line, waits for a byte, and goes on.
	fifo := filepath.Join(e.dir, "fifo")
	ready := filepath.Join(e.dir, "ready")
	e.sh(`mkfifo "$1"`, fifo)
	e.background(`exec 3>>"$1/log"; echo one >&3; : > "$3"; read -r go < "$2"; echo two >&3; : > "$3.2"; exec sleep 60`, at, fifo, ready)
	e.eventually("the first line is written", func() bool { _, err := os.Stat(ready); return err == nil })
	e.stored("w", "s")
	e.sh(`echo go > "$1"`, fifo)
	e.eventually("the second line is written", func() bool { _, err := os.Stat(ready + ".2"); return err == nil })
	equal(e, "log", e.sh(`cat "$1/log"`, at), "one\ntwo")
	_, restored := e.restore("s")
	equal(e, "restored log", e.sh(`cat "$1/log"`, restored), "one")
}

func testSnapshotUnmounted(e *env) {
	at := e.up("w")
	e.sh(`echo one > "$1/f"; chmod 700 "$1"; touch -d @5 "$1"`, at)
	want := e.walk(at)
	e.unmount("w")
	s := e.snapshot("w", "")
	equal(e, "layers", len(s.Layers), 1)
	equal(e, "unchanged", s.Unchanged, false)
	e.same("mounted again", e.walk(e.mount("w")), want, treewalk.Options{Ino: true})
	_, restored := e.restore(s.ID)
	e.same("restored", e.walk(restored), want, treewalk.Options{Ino: true})
}

func testSnapshotUnchanged(e *env) {
	at := e.up("w")
	e.sh(`echo one > "$1/f"`, at)
	first := e.snapshot("w", "")
	equal(e, "the first is unchanged", first.Unchanged, false)
	second := e.snapshot("w", "")
	equal(e, "the second is unchanged", second.Unchanged, true)
	equal(e, "layers", len(second.Layers), len(first.Layers))
	equal(e, "parent", second.Parent, first.ID)
	e.sh(`echo two > "$1/f"`, at)
	third := e.snapshot("w", "")
	equal(e, "the third is unchanged", third.Unchanged, false)
	equal(e, "layers", len(third.Layers), len(first.Layers)+1)
	equal(e, "depth", third.Depth, len(third.Layers))
	e.sh(`chmod 711 "$1"`, at)
	equal(e, "a change of the root's mode only", e.snapshot("w", "").Unchanged, false)
	equal(e, "mode", e.sh(`stat -c %a "$1"`, at), "711")
}

func testSnapshotFields(e *env) {
	at := e.up("w")
	e.sh(`echo one > "$1/f"`, at)
	snap := func(r sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
		r.Workspace = "w"
		return e.api.Snapshot(e.Context(), r)
	}
	before := time.Now()
	s := must[sandbox.Snapshot](e)(snap(sandbox.SnapshotRequest{Name: "übung 1-2", Description: "what\nfor", TTL: time.Hour, NoSync: true}))
	equal(e, "name", s.Name, "übung 1-2")
	equal(e, "description", s.Description, "what\nfor")
	if s.ExpiresAt == nil || s.ExpiresAt.Before(before.Add(time.Hour)) || s.ExpiresAt.After(time.Now().Add(time.Hour)) {
		e.Errorf("expires at %v, want in an hour", s.ExpiresAt)
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(s.ID) {
		e.Errorf("id %s is no UUIDv7", s.ID)
	}
	past := time.Now().Add(-time.Minute)
	future := time.Now().Add(time.Hour)
	for _, bad := range []sandbox.SnapshotRequest{
		{Name: "a\nb"},
		{Name: "a\x00"},
		{Name: "\xff"},
		{Name: " a"},
		{Name: strings.Repeat("x", 257)},
		{Description: strings.Repeat("x", 4097)},
		{TTL: -time.Second},
		{ExpiresAt: &past},
		{TTL: time.Hour, ExpiresAt: &future},
	} {
		_, err := snap(bad)
		e.wants(err, sandbox.ErrInvalid)
	}
	_, err := snap(sandbox.SnapshotRequest{Name: "übung 1-2"})
	e.wants(err, sandbox.ErrConflict, s.ID)
	must[sandbox.Snapshot](e)(snap(sandbox.SnapshotRequest{Name: strings.Repeat("ü", 256)}))
	var stages []string
	must[sandbox.Snapshot](e)(snap(sandbox.SnapshotRequest{WaitStored: true, Progress: func(p sandbox.Progress) { stages = append(stages, p.Stage) }}))
	_, err = e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: "unknown"})
	e.wants(err, sandbox.ErrNotFound, "unknown")
}

func testFidelity(e *env) {
	// Everything is made inside the mount, so that it goes through the upper and the seal, not only through a base
	// image.
	src := e.fixture("src")
	at := e.up("w")
	e.sh(`cp -a --sparse=always "$1/." "$2/"; cp -a "$1/a" "$2/again"; mv "$2/again/b" "$2/moved"; touch -r "$1" "$2"`, src, at)
	want := e.walk(at)
	e.same("copied", trees(want, "a"), trees(e.walk(src), "a"), treewalk.Options{})
	s := e.stored("w", "")
	_, restored := e.restore(s.ID)
	e.same("restored", e.walk(restored), want, treewalk.Options{Ino: true})
	// And once more from a workspace that stands on images.
	e.sh(`mv "$1/moved" "$1/a/b/again"; setfattr -n user.new -v 1 "$1/a/file"; ln "$1/a/b/big" "$1/big2"; rm "$1/fifo"`, restored)
	w := must[sandbox.WorkspacePage](e)(e.api.Workspaces(e.Context(), sandbox.ListRequest{After: "w"})).Workspaces[0]
	want = e.walk(restored)
	s2 := e.stored(w.ID, "")
	_, twice := e.restore(s2.ID)
	e.same("restored twice", e.walk(twice), want, treewalk.Options{Ino: true})
}

// trees picks what lies at or below a path; link groups that leave it are dropped.
func trees(nodes []treewalk.Node, top string) []treewalk.Node {
	var picked []treewalk.Node
	for _, n := range nodes {
		if n.Path == top || strings.HasPrefix(n.Path, top+"/") {
			picked = append(picked, n)
		}
	}
	return picked
}

func testIsolation(e *env) {
	at := e.up("w")
	e.sh(`mkdir "$1/d"; echo base > "$1/d/f"; echo gone > "$1/g"`, at)
	s := e.snapshot("w", "")
	branch := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID}))
	equal(e, "origin", branch.Origin, s.ID)
	b := e.mount(branch.ID)
	e.sh(`echo branch > "$1/d/f"; rm "$1/g"; echo b > "$1/b"`, b)
	e.sh(`echo origin >> "$1/d/f"; mv "$1/d" "$1/e"`, at)
	show := `cd "$1"; find . -type f | sort | while read -r f; do echo "$f: $(tr '\n' ' ' < "$f")"; done`
	equal(e, "origin", e.sh(show, at), "./e/f: base origin \n./g: gone ")
	equal(e, "branch", e.sh(show, b), "./b: b \n./d/f: branch ")
	_, r := e.restore(s.ID)
	equal(e, "restored", e.sh(show, r), "./d/f: base \n./g: gone ")
	// Nor does it matter that the origin and the snapshot go.
	e.unmount("w")
	must[struct{}](e)(struct{}{}, e.destroy("w"))
	must[struct{}](e)(struct{}{}, e.api.Delete(e.Context(), sandbox.RefRequest{Ref: s.ID}))
	must[sandbox.GCResult](e)(e.api.GC(e.Context(), sandbox.GCRequest{}))
	equal(e, "branch", e.sh(show, b), "./b: b \n./d/f: branch ")
	equal(e, "restored", e.sh(show, r), "./d/f: base \n./g: gone ")
}

func testDerivedNames(e *env) {
	e.create("w", "")
	s := e.snapshot("w", "")
	restore := func(id string) sandbox.Workspace {
		return must[sandbox.Workspace](e)(e.api.Restore(e.Context(), sandbox.RestoreRequest{Snapshot: id}))
	}
	r := restore(s.ID)
	r2 := restore(e.snapshot(r.ID, "").ID)
	b := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: e.snapshot(r2.ID, "").ID}))
	f := must[sandbox.Workspace](e)(e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: b.ID}))
	for name, want := range map[string]string{
		r.ID: `^w-restored-[0-9a-f]{4}$`, r2.ID: `^w-restored-[0-9a-f]{4}$`, b.ID: `^w-branch-[0-9a-f]{4}$`, f.ID: `^w-fork-[0-9a-f]{4}$`,
	} {
		if !regexp.MustCompile(want).MatchString(name) {
			e.Errorf("name %s, want %s", name, want)
		}
	}
	long := strings.Repeat("x", 63)
	e.create(long, "")
	if got := restore(e.snapshot(long, "").ID).ID; len(got) != 63 || !strings.Contains(got, "x-restored-") {
		e.Errorf("name %s of %d characters, want 63 with a suffix", got, len(got))
	}
}

func testBranchUndone(e *env) {
	at := e.up("w")
	e.sh(`echo x > "$1/f"`, at)
	s := e.snapshot("w", "")
	for _, mountpoint := range []string{at, filepath.Join(e.dir, "missing"), e.home} {
		_, err := e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Mountpoint: mountpoint})
		if !errors.Is(err, sandbox.ErrConflict) && !errors.Is(err, sandbox.ErrNotFound) {
			e.Errorf("branch at %s: got %v", mountpoint, err)
		}
	}
	page := must[sandbox.WorkspacePage](e)(e.api.Workspaces(e.Context(), sandbox.ListRequest{}))
	equal(e, "workspaces", len(page.Workspaces), 1)
	done := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Mountpoint: e.mkdir("there")}))
	var branched []string
	if err := e.api.Events(e.Context(), sandbox.EventsRequest{Workspace: "w"}, func(ev sandbox.Event) error {
		if ev.Kind == sandbox.EventBranched {
			branched = append(branched, ev.Detail)
		}
		return nil
	}); err != nil {
		e.Error(err)
	}
	equal(e, "branches in the log of the origin", strings.Join(branched, " "), done.ID)
	e.unmount(done.ID)
	if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: done.ID, Now: true}); err != nil {
		e.Error(err)
	}
	e.eventually("the uppers are gone", func() bool {
		left, err := os.ReadDir(filepath.Join(e.home, "uppers"))
		return err == nil && len(left) <= 2+kept // of w: the sealed one until it is stored, and the present one
	})
}

func testFork(e *env) {
	at := e.up("w")
	e.sh(`echo one > "$1/f"`, at)
	target := e.mkdir("fork")
	f := must[sandbox.Workspace](e)(e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w", Mountpoint: target}))
	equal(e, "mountpoint", f.Mountpoint, target)
	e.sh(`echo two > "$1/f"; echo fork > "$2/g"`, at, target)
	equal(e, "origin", e.sh(`ls "$1"; cat "$1/f"`, at), "f\ntwo")
	equal(e, "fork", e.sh(`cat "$1/f" "$1/g"`, target), "one\nfork")
	page := must[sandbox.SnapshotPage](e)(e.api.Snapshots(e.Context(), sandbox.ListRequest{}))
	equal(e, "snapshots", len(page.Snapshots), 0)
	e.unmount("w")
	if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: "w", Now: true}); err != nil {
		e.Fatal(err)
	}
	equal(e, "fork of a destroyed workspace", e.sh(`cat "$1/f" "$1/g"`, target), "one\nfork")
	_, err := e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w"})
	e.wants(err, sandbox.ErrNotFound)
}
