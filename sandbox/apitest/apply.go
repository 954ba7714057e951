package apitest

import (
	"fmt"
	"path/filepath"
	"strings"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// Changes of the two sides that do not touch the same, and have the same outcome in any order.
const (
	theirChange = `cd "$1"; sed -i s/^3$/three/ both; mv dir moved; echo new > moved/new; rm -r gone; chmod 600 mode
		mkdir -p n/m; echo n > n/m/n; ln n/m/n n/m/link; ln -sf both symbolic; setfattr -n user.k -v v keep/k; echo more >> link1
		truncate -s 1M holes; mkfifo pipe; mv swap1 x; mv swap2 swap1; mv x swap2; rm type; mkdir type; echo in > type/in
		printf '\0binary' > bin; chmod 700 deep/er; touch -d @77 keep/old; rm two; ln one two; chown 7:8 owned`
	ourChange = `cd "$1"; sed -i s/^18$/eighteen/ both; own=${2:-dir}; echo z > "$own/e/y"; echo mine > "$own/mine"; echo own > own
		mv deep deeper; echo more >> "${3:-swap1}"; mkdir "${2:-dir}/e/mine"`
)

// testApply brings changes home: mounted, paused and unmounted, all at once, and back.
func testApply(e *env) {
	src := e.mkdir("src")
	e.sh(`cd "$1"; mkdir -p dir/e gone/deep keep deep/er; seq 20 > both; echo x > dir/x; echo y > dir/e/y; echo g > gone/deep/g
		for f in mode keep/k keep/old link1 bin type swap1 swap2 one two owned deep/er/f; do echo "$f" > "$f"; done
		ln link1 link2; ln -s link1 symbolic`, src)
	e.create("w", src)
	e.snapshot("w", "base")
	branch := func(name, mountpoint string) {
		must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{
			Snapshot: "w:base", Name: name, Mountpoint: mountpoint, MakeMountpoint: true,
		}))
	}
	try, both := e.mkdir("try"), e.mkdir("both")
	branch("try", try)
	branch("both", both)
	e.sh(theirChange, try)
	e.sh(theirChange, both)
	e.sh(ourChange, both, "moved", "swap2")
	want := e.walk(both)
	at := e.mount("w")
	e.sh(ourChange, at)
	before := e.walk(at)
	apply := func(r sandbox.ApplyRequest) sandbox.ApplyResult {
		e.Helper()
		got := must[sandbox.ApplyResult](e)(e.api.Apply(e.Context(), r))
		if len(got.Conflicts) > 0 {
			e.Errorf("conflicts: %+v", got.Conflicts)
		}
		return got
	}
	opts := treewalk.Options{IgnoreMtime: true}
	equal(e, "a trial", apply(sandbox.ApplyRequest{From: "try", DryRun: true}).Applied, false)
	e.same("after a trial", e.walk(at), before, treewalk.Options{Ino: true})
	open := e.sh(`exec 3< "$1/both"; cat <&3 | md5sum`, at)

	got := apply(sandbox.ApplyRequest{From: "try"})
	equal(e, "applied to", got.Workspace, "w")
	equal(e, "merged texts", got.Merged, 1)
	e.same("applied", e.walk(at), want, opts)
	equal(e, "time of what was touched", e.sh(`stat -c %Y "$1/keep/old"`, at), "77")
	e.same("what was before", e.walk(must2(e.restore(got.Before))), before, treewalk.Options{Ino: true})
	equal(e, "again", apply(sandbox.ApplyRequest{From: "try"}).Applied, false)
	if text := e.sh(`md5sum < "$1/both"`, at); text == open {
		e.Errorf("the merged text is the old one")
	}

	e.sh(`echo later > "$1/later"`, at)
	_, err := e.api.Apply(e.Context(), sandbox.ApplyRequest{To: "w", Undo: true})
	e.wants(err, sandbox.ErrConflict, "changed since", "--force")
	e.sh(`rm "$1/later"`, at)
	apply(sandbox.ApplyRequest{To: "w", Undo: true, Force: true})
	e.same("taken back", e.walk(at), before, treewalk.Options{Ino: true})
	_, err = e.api.Apply(e.Context(), sandbox.ApplyRequest{To: "w", Undo: true})
	e.wants(err, sandbox.ErrNotFound, "nothing was applied")

	must[sandbox.Workspace](e)(e.api.Pause(e.Context(), sandbox.PauseRequest{Workspace: "w"}))
	apply(sandbox.ApplyRequest{From: "try", To: "w"})
	equal(e, "paused", must[sandbox.Workspace](e)(e.api.Resume(e.Context(), sandbox.RefRequest{Ref: "w"})).Paused, false)
	e.same("applied to a paused one", e.walk(at), want, opts)
	apply(sandbox.ApplyRequest{To: "w", Undo: true})
	e.unmount("w")
	apply(sandbox.ApplyRequest{From: must[sandbox.ApplyResult](e)(e.api.Apply(e.Context(), sandbox.ApplyRequest{
		From: e.snapshot("try", "done").ID, To: "w", DryRun: true,
	})).From, To: "w"})
	e.same("applied to an unmounted one", e.walk(e.mount("w")), want, opts)

	// What went on since is one more step, with the last apply as the base.
	e.sh(`cd "$1"; sed -i s/^three$/3/ both; echo back > n/m/n`, try)
	e.sh(`sed -i s/^1$/one/ "$1/both"`, at)
	apply(sandbox.ApplyRequest{From: "try"})
	equal(e, "the next step", e.sh(`head -3 "$1/both" | tr '\n' ' '; cat "$1/n/m/link"`, at), "one 2 3 back")
	equal(e, "problems", len(must[sandbox.CheckResult](e)(e.api.Check(e.Context(), sandbox.CheckRequest{ReadData: true})).Problems), 0)
}

// must2 is the second of two.
func must2[T any](_ sandbox.Workspace, second T) T { return second }

// testApplyConflicts has conflicts of every kind told, and settled.
func testApplyConflicts(e *env) {
	src := e.mkdir("src")
	e.sh(`cd "$1"; for f in text bin deleted changed mode owner attr ren retype file; do echo "$f" > "$f"; done
		printf '\0' > bin; mkdir dir d2; echo in > dir/in; seq 5 > clean`, src)
	e.create("w", src)
	e.snapshot("w", "base")
	try := e.mkdir("try")
	must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: "w:base", Name: "try", Mountpoint: try}))
	at := e.mount("w")
	e.sh(`cd "$1"; echo theirs > text; printf '\0t' > bin; rm deleted; echo c >> changed; chmod 600 mode; chown 5 owner
		setfattr -n user.a -v t attr; mv ren ren-t; rm retype; mkdir retype; echo a > added; echo f > new; rm -r dir; echo f > dir
		sed -i s/1/one/ clean; echo t >> file; mkdir d2/t`, try)
	e.sh(`cd "$1"; echo ours > text; printf '\0o' > bin; echo d >> deleted; rm changed; chmod 640 mode; chown 6 owner
		setfattr -n user.a -v o attr; mv ren ren-o; echo r > retype; echo b > added; mkdir new; echo i > new/i; echo more > dir/more
		rm file; mkdir file; rmdir d2; echo f > d2`, at)
	before := e.walk(at)
	got := must[sandbox.ApplyResult](e)(e.api.Apply(e.Context(), sandbox.ApplyRequest{From: "try"}))
	var list []string
	for _, c := range got.Conflicts {
		list = append(list, fmt.Sprintf("%s %s", c.Path, c.Kind))
	}
	equal(e, "conflicts", strings.Join(list, "\n"), `added added/added
attr attribute/attribute
bin both changed
changed deleted/changed
d2 directory/file
deleted deleted/changed
dir directory/file
file type/type
mode mode/mode
new directory/file
owner owner/owner
ren-o rename/rename
retype type/type
text both changed`)
	equal(e, "applied", got.Applied, false)
	e.same("with conflicts", e.walk(at), before, treewalk.Options{Ino: true})
	settle := func(how string) sandbox.ApplyResult {
		return must[sandbox.ApplyResult](e)(e.api.Apply(e.Context(), sandbox.ApplyRequest{From: "try", Conflicts: how}))
	}
	equal(e, "markers do not settle all", len(settle("markers").Conflicts), len(list)-2)
	equal(e, "ours", settle("ours").Applied, true)
	e.sh(`cd "$1"; sed -i s/one/1/ clean`, at)
	e.same("ours", e.walk(at), before, treewalk.Options{IgnoreMtime: true})
	must[sandbox.ApplyResult](e)(e.api.Apply(e.Context(), sandbox.ApplyRequest{To: "w", Undo: true, Force: true}))
	equal(e, "theirs", settle("theirs").Applied, true)
	e.same("theirs", e.walk(at), e.walk(try), treewalk.Options{IgnoreMtime: true})
	must[sandbox.ApplyResult](e)(e.api.Apply(e.Context(), sandbox.ApplyRequest{To: "w", Undo: true}))
	e.same("taken back", e.walk(at), before, treewalk.Options{Ino: true})
	for _, name := range []string{"a", "b"} {
		must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: "w:base", Name: name}))
		e.sh(`cd "$1" && echo "$2" > text && echo "$2" > added`, e.mount(name), name)
	}
	got = must[sandbox.ApplyResult](e)(e.api.Apply(e.Context(), sandbox.ApplyRequest{From: "b", To: "a", Conflicts: "markers"}))
	equal(e, "markers", got.Applied, true)
	marked := "<<<<<<< a\na\n=======\nb\n>>>>>>> b"
	equal(e, "marked", e.sh(`cat "$1/text" "$1/added"`, filepath.Join(e.dir, "mnt-a")), marked+"\n"+marked)
}

func testApplyRefuses(e *env) {
	e.create("w", "")
	e.create("other", "")
	apply := func(r sandbox.ApplyRequest) error {
		_, err := e.api.Apply(e.Context(), r)
		return err
	}
	e.wants(apply(sandbox.ApplyRequest{From: "w"}), sandbox.ErrInvalid, "--to")
	e.wants(apply(sandbox.ApplyRequest{From: "w", To: "w"}), sandbox.ErrInvalid)
	e.wants(apply(sandbox.ApplyRequest{From: "w", To: "other"}), sandbox.ErrInvalid, "--base")
	e.wants(apply(sandbox.ApplyRequest{From: "none", To: "w"}), sandbox.ErrNotFound, "none")
	e.wants(apply(sandbox.ApplyRequest{From: "w", To: "none"}), sandbox.ErrNotFound, "none")
	e.wants(apply(sandbox.ApplyRequest{From: "w", To: "other", Conflicts: "mine"}), sandbox.ErrInvalid, "mine")
	e.wants(apply(sandbox.ApplyRequest{To: "w", Undo: true}), sandbox.ErrNotFound)
	e.wants(apply(sandbox.ApplyRequest{Access: sandbox.Access{Session: "unrelated"}, From: "w", To: "other"}), sandbox.ErrRefused)
	s := e.snapshot("w", "s")
	must[sandbox.Workspace](e)(e.api.Branch(e.Context(), sandbox.RestoreRequest{Snapshot: s.ID, Name: "try"}))
	at := e.mount("try")
	e.sh(`echo new > "$1/new"`, at)
	at = e.mkdir("ro")
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{
		Workspace: "w", Mountpoint: at, MountOptions: sandbox.MountOptions{ReadOnly: true},
	}))
	e.wants(apply(sandbox.ApplyRequest{From: "try"}), sandbox.ErrConflict, "read-only")
	equal(e, "names", e.sh(`ls "$1"`, at), "")
	// With a base of one's own, what has nothing in common can be merged too.
	at = e.mount("other")
	e.sh(`echo own > "$1/own"`, at)
	if err := apply(sandbox.ApplyRequest{From: "try", To: "other", Base: s.ID}); err != nil {
		e.Fatal(err)
	}
	equal(e, "names", e.sh(`ls "$1"`, at), "new\nown")
}
