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
		w := must[sandbox.Workspace](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: snapshot}))
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
	must[sandbox.Workspace](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: "first"}))
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
	must[sandbox.Workspace](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: "s"}))
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
