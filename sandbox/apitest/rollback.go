package apitest

import (
	"os"
	"path/filepath"
	"strings"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// testRollback goes back in place, mounted: caches of the kernel, open files, and the way there and back.
func testRollback(e *env) {
	src := e.fixture("src")
	e.create("w", src)
	at := e.mount("w")
	e.sh(`echo one > "$1/a/file"; mkdir "$1/d" "$1/d/e"; echo in > "$1/d/e/f"; echo old > "$1/moved"; ln "$1/moved" "$1/d/link"; touch -d @7 "$1/d" "$1"`, at)
	first := e.walk(at)
	e.snapshot("w", "first")
	back := func(snapshot string) {
		e.Helper()
		w := must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: snapshot}))
		equal(e, "state", w.State, sandbox.Mounted)
	}
	ino := e.sh(`stat -c %i "$1/a/file"`, at)
	change := `cd "$1"; echo two > a/file; rm -r d/e; mv moved d/moved2; echo new > new; mkdir -p n/m; echo x > n/m/x; rm -rf private
		chmod 711 a; mv d dd; mkdir d; echo other > d/other; ls -lR . > /dev/null; cat a/file new n/m/x > /dev/null; ! cat moved 2> /dev/null`
	e.sh(change, at)
	second := e.walk(at)
	e.snapshot("w", "second")
	e.sh(`echo three > "$1/a/file"; rm -r "$1/n"; ls -lR "$1" > /dev/null`, at)

	back("first")
	e.same("first", e.walk(at), first, treewalk.Options{Ino: true})
	equal(e, "a file made later", e.sh(`cat "$1/new" 2>&1 || :`, at), "cat: "+at+"/new: No such file or directory")
	equal(e, "inode number", e.sh(`stat -c %i "$1/a/file"`, at), ino)
	back("second")
	e.same("second, which was ahead", e.walk(at), second, treewalk.Options{Ino: true})
	e.sh(`echo more >> "$1/a/file"; cat "$1/a/file" > /dev/null`, at)
	back("second")
	e.same("second again", e.walk(at), second, treewalk.Options{Ino: true})
	equal(e, "unchanged", e.snapshot("w", "").Unchanged, true)
	e.sh(`echo goes on > "$1/d/after"; mkdir "$1/more"`, at)
	third := e.walk(at)
	e.unmount("w")
	at = e.mount("w")
	e.same("mounted again", e.walk(at), third, treewalk.Options{Ino: true})
	e.unmount("w")
	must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: "first"}))
	e.same("first, not mounted", e.walk(e.mount("w")), first, treewalk.Options{Ino: true})
	equal(e, "problems", len(must[sandbox.CheckResult](e)(e.api.Check(e.Context(), sandbox.CheckRequest{ReadData: true})).Problems), 0)
}

// testRollbackOpen has programs hold files and directories open over a rollback.
func testRollbackOpen(e *env) {
	at := e.up("w")
	e.sh(`echo one > "$1/log"; mkdir "$1/keep" "$1/goes.d"; echo k > "$1/keep/k"`, at)
	e.sh(`rmdir "$1/goes.d"`, at)
	e.snapshot("w", "s")
	e.sh(`echo two >> "$1/log"; mkdir "$1/goes"; echo x > "$1/goes/x"; rm "$1/keep/k"`, at)
	dir := e.mkdir("x")
	e.sh(`mkfifo "$1/go"`, dir)
	// It stays in a directory that goes and one that stays, appends to a file that changes back and to one that goes.
	e.background(`exec 3>>"$1/log" 4<"$1/log" 5>>"$1/goes/x" 6<"$1/goes/x"; cd "$1/keep"; : > "$2/ready"; read -r go < "$2/go"
		echo three >&3; echo y >&5; cat <&4 > "$2/log"; cat <&6 > "$2/x"; { cat k; echo made > new; pwd; } > "$2/keep" 2>&1
		cd "$1/goes" 2> "$2/cd" || :; exec 3>&- 4<&- 5>&- 6<&-; : > "$2/done"; exec sleep 60`, at, dir)
	exists := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	}
	e.eventually("everything is open", exists("ready"))
	must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: "s"}))
	equal(e, "the tree", e.sh(`cat "$1/log" "$1/keep/k"; ls "$1"`, at), "one\nk\nkeep\nlog")
	e.sh(`echo go > "$1/go"`, dir)
	e.eventually("the program has gone on", exists("done"))
	equal(e, "the old file", e.sh(`cat "$1/log"`, dir), "one\ntwo\nthree")
	equal(e, "the file that went", e.sh(`cat "$1/x"`, dir), "x\ny")
	equal(e, "the directory that stayed", e.sh(`cat "$1/keep"`, dir), "k\n"+at+"/keep")
	if got := e.sh(`cat "$1/cd"`, dir); !strings.Contains(got, "goes") {
		e.Errorf("the directory that went could be entered: %q", got)
	}
	equal(e, "the tree after", e.sh(`cat "$1/log" "$1/keep/new"; ls "$1" "$1/keep"`, at),
		"one\nmade\n"+at+":\nkeep\nlog\n\n"+at+"/keep:\nk\nnew")
}

func testRollbackRefuses(e *env) {
	at := e.up("w")
	e.sh(`echo one > "$1/f"`, at)
	s := e.snapshot("w", "s")
	e.sh(`echo two > "$1/f"`, at)
	back := func(r sandbox.RollbackRequest) error {
		_, err := e.api.Rollback(e.Context(), r)
		return err
	}
	e.wants(back(sandbox.RollbackRequest{Workspace: "none", Snapshot: "s"}), sandbox.ErrNotFound, "none")
	e.wants(back(sandbox.RollbackRequest{Workspace: "w", Snapshot: "none"}), sandbox.ErrNotFound, "none")
	e.wants(back(sandbox.RollbackRequest{Workspace: "../w", Snapshot: "s"}), sandbox.ErrInvalid)
	e.wants(back(sandbox.RollbackRequest{Access: sandbox.Access{Session: "unrelated"}, Workspace: "w", Snapshot: s.ID}), sandbox.ErrRefused)
	e.unmount("w")
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "w", MountOptions: sandbox.MountOptions{ReadOnly: true}}))
	e.wants(back(sandbox.RollbackRequest{Workspace: "w", Snapshot: "s"}), sandbox.ErrConflict, "read-only")
	equal(e, "contents", e.sh(`cat "$1/f"`, at), "two")
}

// testRollbackKeeps has back what a rollback took away.
func testRollbackKeeps(e *env) {
	at := e.up("w")
	e.sh(`echo one > "$1/f"`, at)
	s := e.snapshot("w", "s")
	back := func(r sandbox.RollbackRequest) *sandbox.Snapshot {
		e.Helper()
		r.Workspace = "w"
		return must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), r)).Kept
	}
	count := func() int {
		return len(must[sandbox.SnapshotPage](e)(e.api.Snapshots(e.Context(), sandbox.ListRequest{})).Snapshots)
	}
	if kept := back(sandbox.RollbackRequest{Snapshot: "s"}); kept != nil {
		e.Errorf("nothing was unsaved: %+v", kept)
	}
	e.sh(`echo two > "$1/f"; echo new > "$1/new"`, at)
	kept := back(sandbox.RollbackRequest{Snapshot: "s"})
	if kept == nil {
		e.Fatal("nothing was kept")
	}
	equal(e, "name", kept.Name, "")
	equal(e, "parent", kept.Parent, s.ID)
	if kept.ExpiresAt == nil || !strings.Contains(kept.Description, "w:s") {
		e.Errorf("kept: %+v", kept)
	}
	equal(e, "the tree", e.sh(`cat "$1"/*`, at), "one")
	if again := back(sandbox.RollbackRequest{Snapshot: kept.ID}); again != nil {
		e.Errorf("nothing was unsaved: %+v", again)
	}
	equal(e, "the tree, back", e.sh(`cat "$1"/*`, at), "two\nnew")
	e.sh(`echo three > "$1/f"`, at)
	before := count()
	if kept := back(sandbox.RollbackRequest{Snapshot: "s", Discard: true}); kept != nil || count() != before {
		e.Errorf("given up: %+v, %d snapshots, before %d", kept, count(), before)
	}
	// Paused, and not mounted.
	must[sandbox.Workspace](e)(e.api.Pause(e.Context(), sandbox.PauseRequest{Workspace: "w"}))
	equal(e, "paused, unchanged", back(sandbox.RollbackRequest{Snapshot: "s"}) == nil, true)
	must[sandbox.Workspace](e)(e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "w"}))
	e.sh(`echo four > "$1/f"`, at)
	must[sandbox.Workspace](e)(e.api.Pause(e.Context(), sandbox.PauseRequest{Workspace: "w"}))
	kept = back(sandbox.RollbackRequest{Snapshot: "s"})
	must[sandbox.Workspace](e)(e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "w"}))
	equal(e, "paused and resumed", e.sh(`cat "$1"/*`, at), "one")
	e.sh(`echo five > "$1/f"`, at)
	e.unmount("w")
	last := back(sandbox.RollbackRequest{Snapshot: kept.ID})
	equal(e, "while it was paused", e.sh(`cat "$1"/*`, e.mount("w")), "four")
	back(sandbox.RollbackRequest{Snapshot: last.ID})
	equal(e, "while it was not mounted", e.sh(`cat "$1"/*`, at), "five")
}

// testRollbackForeign goes to snapshots of others only if it is told to.
func testRollbackForeign(e *env) {
	at := e.up("w")
	e.sh(`echo mine > "$1/f"`, at)
	e.snapshot("w", "s")
	other := e.up("other")
	e.sh(`echo theirs > "$1/f"`, other)
	e.snapshot("other", "s")
	e.snapshot("other", "t")
	try := func(workspace, snapshot string, foreign bool) error {
		_, err := e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: workspace, Snapshot: snapshot, Foreign: foreign})
		return err
	}
	before := e.show("w").Head
	for _, name := range []string{"t", "other:s"} {
		e.wants(try("w", name, false), sandbox.ErrConflict, "other:", "history of w", "--foreign")
	}
	equal(e, "head", e.show("w").Head, before)
	equal(e, "the tree", e.sh(`cat "$1"/*`, at), "mine")
	br := must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: "other:t", Name: "br"}))
	for _, name := range []string{"t", "s", "other:s"} { // on which it was made
		if err := try(br.ID, name, false); err != nil {
			e.Error(err)
		}
	}
	e.wants(try(br.ID, "w:s", false), sandbox.ErrConflict, "w:s")
	if err := try("w", "t", true); err != nil {
		e.Error(err)
	}
	equal(e, "the tree of another", e.sh(`cat "$1"/*`, at), "theirs")
}

// testRollbackHistory goes to what a workspace was made of: by another way than through its newest snapshot, when one in
// between is deleted, and not to what an earlier workspace of its name has left.
func testRollbackHistory(e *env) {
	at := e.up("w")
	for _, name := range []string{"one", "two", "three"} {
		e.sh(`echo "$2" > "$1/f"`, at, name)
		e.snapshot("w", name)
	}
	try := func(workspace, snapshot string) error {
		_, err := e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: workspace, Snapshot: snapshot})
		return err
	}
	fork := must[sandbox.Workspace](e)(e.api.Fork(e.Context(), sandbox.ForkRequest{Workspace: "w", Name: "fork"}))
	equal(e, "origin", fork.Origin, e.show("w").Head)
	for _, name := range []string{"one", "three", "w:two"} {
		if err := try("fork", name); err != nil {
			e.Errorf("fork to %s: %v", name, err)
		}
	}
	must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: "w:two", Name: "br"}))
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: "w:two"}); err != nil {
		e.Error(err)
	}
	e.wants(try("br", "w:three"), sandbox.ErrConflict, "--foreign")
	if err := try("br", "w:one"); err != nil {
		e.Error(err)
	}
	e.create("gone", "")
	e.snapshot("gone", "built")
	if _, err := e.api.Destroy(e.Context(), sandbox.DestroyRequest{Ref: "gone", Now: true}); err != nil {
		e.Error(err)
	}
	e.create("gone", "w:one")
	for _, name := range []string{"built", "gone:built"} {
		e.wants(try("gone", name), sandbox.ErrConflict, "an earlier workspace gone", "--foreign")
	}
	e.snapshot("gone", "mine")
	for _, name := range []string{"mine", "one"} {
		if err := try("gone", name); err != nil {
			e.Errorf("gone to %s: %v", name, err)
		}
	}
}
