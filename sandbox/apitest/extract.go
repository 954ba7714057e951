package apitest

import (
	"path/filepath"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// testExtract: a directory gets what a mount shows, of directories that are not stored yet, of images, and of both.
func testExtract(e *env) {
	src := e.fixture("src")
	at := e.up("w")
	e.sh(`cp -a --sparse=always "$1/." "$2/"; cp -a "$1/a" "$2/again"; mv "$2/again/b" "$2/moved"; touch -r "$1" "$2"`,
		src, at)
	extract := func(snapshot, name string) {
		e.Helper()
		path := filepath.Join(e.dir, name)
		_, mounted := e.restore(snapshot)
		want := e.walk(mounted)
		last := sandbox.Progress{}
		r := must[sandbox.ExtractResult](e)(e.api.Extract(e.Context(), sandbox.ExtractRequest{
			Snapshot: snapshot, Path: path, Progress: func(p sandbox.Progress) { last = p },
		}))
		e.same(name, e.walk(path), want, treewalk.Options{})
		equal(e, "skipped", r.Skipped, 0)
		equal(e, "path", r.Path, path)
		equal(e, "nodes", int(r.Directories+r.Files+r.Others+r.Links), len(want))
		equal(e, "progress", last.Stage == "restore", r.Files > 0)
	}
	sealed := e.snapshot("w", "sealed")
	extract(sealed.ID, "sealed")
	e.stored("w", "")
	extract(sealed.ID, "stored")
	// Several layers, with what they hide of each other, the topmost of them with partial files.
	e.sh(`mv "$1/moved" "$1/a/b/again"; setfattr -n user.new -v 1 "$1/a/file"; ln "$1/a/b/big" "$1/big2"
		rm "$1/fifo"; rm -r "$1/again"; mkdir "$1/again"; echo new > "$1/again/file"; chmod 700 "$1/a/file"`, at)
	e.stored("w", "")
	e.sh(`printf changed | dd of="$1/a/b/big" bs=1 seek=70000 conv=notrunc status=none; mv "$1/a" "$1/A"`, at)
	extract(e.snapshot("w", "").ID, "both")
	extract(e.stored("w", "").ID, "deltas")
	extract(e.stored("w", "").ID, "unchanged")
	e.create("nothing", "")
	extract(e.snapshot("nothing", "").ID, "nothing")
}

func testExtractRefuses(e *env) {
	at := e.up("w")
	e.sh(`echo x > "$1/f"`, at)
	s, other := e.snapshot("w", "s"), e.snapshot("w", "other")
	full := e.mkdir("full")
	e.sh(`touch "$1/mine"`, full)
	half := e.mkdir("half")
	e.sh(`echo '{"version":1,"snapshot":"'"$2"'"}' > "$1/.snapfs-restore"`, half, other.ID)
	for _, bad := range []struct {
		path  string
		class error
		says  string
	}{
		{"relative", sandbox.ErrInvalid, "absolute"},
		{at + "/x", sandbox.ErrInvalid, "inside the mount"},
		{e.home + "/x", sandbox.ErrInvalid, "home"},
		{e.dir, sandbox.ErrInvalid, "contains the home"},
		{e.dir + "/no/x", sandbox.ErrNotFound, "no"},
		{full + "/mine", sandbox.ErrInvalid, "not a directory"},
		{full, sandbox.ErrConflict, "not empty"},
		{half, sandbox.ErrConflict, other.ID},
	} {
		_, err := e.api.Extract(e.Context(), sandbox.ExtractRequest{Snapshot: s.ID, Path: bad.path})
		e.wants(err, bad.class, bad.says)
	}
	_, err := e.api.Extract(e.Context(), sandbox.ExtractRequest{Snapshot: "unknown", Path: e.dir + "/new"})
	e.wants(err, sandbox.ErrNotFound, "unknown")
	equal(e, "files made", e.sh(`ls -A "$1"; ls -A "$2"; ls "$3" | grep new || :`, full, half, e.dir),
		"mine\n.snapfs-restore")
	must[sandbox.ExtractResult](e)(e.api.Extract(e.Context(), sandbox.ExtractRequest{Snapshot: other.ID, Path: half}))
	equal(e, "continued", e.sh(`ls -A "$1"`, half), "f")
}
