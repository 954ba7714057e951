package apitest

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
)

// fixture makes a directory with everything a tree can hold.
func (e *env) fixture(name string) string {
	e.Helper()
	dir := e.mkdir(name)
	in := func(rel string) string { return filepath.Join(dir, rel) }
	big := []byte(strings.Repeat("0123456789abcdef", 20000))
	for _, err := range []error{
		os.MkdirAll(in("a/b/c"), 0o755),
		os.Mkdir(in("private"), 0o700),
		os.Mkdir(in("sticky"), 0o755),
		os.Chmod(in("sticky"), 0o1777|os.ModeSticky),
		os.WriteFile(in("a/file"), []byte("contents\n"), 0o644),
		os.WriteFile(in("a/empty"), nil, 0o600),
		os.WriteFile(in("a/b/big"), big, 0o640),
		os.WriteFile(in("a/b/script"), []byte("#!/bin/sh\necho ok\n"), 0o755),
		os.WriteFile(in("setuid"), []byte("x"), 0o755),
		os.Chown(in("setuid"), 1000, 1001),
		unix.Chmod(in("setuid"), 0o6755),
		os.Link(in("a/file"), in("a/b/link1")),
		os.Link(in("a/file"), in("private/link2")),
		os.Symlink("../file", in("a/b/sym")),
		os.Symlink(strings.Repeat("long/", 100), in("dangling")),
		unix.Lchown(in("dangling"), 12, 34),
		unix.Mkfifo(in("fifo"), 0o620),
		unix.Mknod(in("null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		unix.Mknod(in("block"), unix.S_IFBLK|0o600, int(unix.Mkdev(259, 70000))),
		os.WriteFile(in("odd \xff\n\\name"), []byte("odd"), 0o644),
		os.WriteFile(in(strings.Repeat("n", 255)), []byte("long"), 0o644),
		os.WriteFile(in("sparse"), nil, 0o644),
		os.Truncate(in("sparse"), 1<<20),
		unix.Lsetxattr(in("a/file"), "user.comment", []byte("value \x00 binary"), 0),
		unix.Lsetxattr(in("a"), "trusted.thing", []byte("dir"), 0),
		unix.Lsetxattr(in("dangling"), "trusted.thing", []byte("link"), 0),
	} {
		if err != nil {
			e.Fatal(err)
		}
	}
	f, err := os.OpenFile(in("sparse"), os.O_WRONLY, 0)
	if err != nil {
		e.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("data", 1024)), 256<<10); err != nil {
		e.Fatal(err)
	}
	if err := f.Close(); err != nil {
		e.Fatal(err)
	}
	for rel, sec := range map[string]int64{"a/file": 1234567890, "dangling": -5, "private": 1 << 33, "a/b": 999, ".": 77} {
		ts := []unix.Timespec{{Sec: sec, Nsec: 123456789}, {Sec: sec, Nsec: 987654321}}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, in(rel), ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			e.Fatal(err)
		}
	}
	return dir
}

func testCreateEmpty(e *env) {
	w := e.create("empty", "")
	equal(e, "id", w.ID, "empty")
	equal(e, "session", w.Session, "default")
	equal(e, "state", w.State, sandbox.Unmounted)
	equal(e, "layers", w.Layers, 0)
	at := e.mount("empty")
	equal(e, "entries", e.sh(`ls -A "$1"; stat -c %a:%u:%g "$1"`, at), "755:0:0")
	w = e.show("empty")
	equal(e, "state", w.State, sandbox.Mounted)
	equal(e, "mountpoint", w.Mountpoint, at)
	_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: "empty"})
	e.wants(err, sandbox.ErrConflict, "empty")
}

func testCreateNames(e *env) {
	for _, name := range []string{"", "A", "-a", "a-", "a_b", "a/b", "..", "a\x00", "a b", strings.Repeat("a", 64), strings.Repeat("a", 10000)} {
		_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: name})
		e.wants(err, sandbox.ErrInvalid)
	}
	e.create("a", "")
	e.create(strings.Repeat("b", 63), "")
	e.create("0-9", "")
	_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: "s", Access: sandbox.Access{Session: "no/slash"}})
	e.wants(err, sandbox.ErrInvalid, "session")
}

func testCreateFromDirectory(e *env) {
	src := e.fixture("src")
	want := e.walk(src)
	w := e.create("from-dir", src)
	equal(e, "layers", w.Layers, 1)
	equal(e, "source", w.Source, src)
	at := e.mount("from-dir")
	e.same("mounted", e.walk(at), want, treewalk.Options{})
	// What happens to the source afterwards does not matter.
	e.sh(`echo changed >> "$1/a/file"; rm -r "$1/private"`, src)
	e.same("after the source changed", e.walk(at), want, treewalk.Options{})
	// Nor can the workspace change its source.
	e.sh(`rm -r "$1"/a`, at)
	equal(e, "file in the source", e.sh(`cat "$1/a/file"`, src), "contents\nchanged")
	// A symbolic link to a directory is that directory.
	link := filepath.Join(e.dir, "link")
	if err := os.Symlink("src", link); err != nil {
		e.Fatal(err)
	}
	e.create("from-link", link)
}

func testCreateFromImage(e *env) {
	src := e.fixture("src")
	image := filepath.Join(e.dir, "tree.sqsh")
	e.sh(`mksquashfs "$1" "$2" -no-progress -quiet -comp zstd >/dev/null`, src, image)
	e.create("from-image", image)
	at := e.mount("from-image")
	// Another tool's image has whole seconds of 32 bits, and no extents.
	e.same("mounted", e.walk(at), e.walk(src), treewalk.Options{IgnoreMtime: true, IgnoreExtents: true})
	equal(e, "time", e.sh(`stat -c %Y "$1/a/file"`, at), "1234567890")

	bad := filepath.Join(e.dir, "bad.sqsh")
	e.sh(`head -c 200 "$1" > "$2"`, image, bad)
	_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: "bad", Source: bad})
	e.wants(err, sandbox.ErrCorrupt, "bad.sqsh")
	// Our own image, cut off within the section that other programs do not read.
	e.snapshot("from-image", "s")
	whole := filepath.Join(e.dir, "whole.sqsh")
	must[sandbox.ExportResult](e)(e.api.Export(e.Context(), sandbox.ExportRequest{Snapshot: "s", Path: whole, Compression: "none"}))
	for _, more := range []string{"20", "100"} {
		e.sh(`used=$(od -An -t u8 -j 40 -N 8 "$1"); head -c $(((used + 4095) / 4096 * 4096 + $3)) "$1" > "$2"`, whole, bad, more)
		_, err = e.api.Create(e.Context(), sandbox.CreateRequest{Name: "bad", Source: bad})
		e.wants(err, sandbox.ErrCorrupt, "bad.sqsh", "extension")
	}
	e.sh(`echo text > "$1"`, bad)
	_, err = e.api.Create(e.Context(), sandbox.CreateRequest{Name: "bad", Source: bad})
	e.wants(err, sandbox.ErrInvalid, "bad.sqsh")
	_, err = e.api.Show(e.Context(), sandbox.RefRequest{Ref: "bad"})
	e.wants(err, sandbox.ErrNotFound)
}

func testCreateFromSnapshot(e *env) {
	at := e.up("origin")
	e.sh(`echo one > "$1/f"`, at)
	s := e.snapshot("origin", "first")
	e.sh(`echo two > "$1/f"`, at)
	w := e.create("copy", "first")
	equal(e, "origin", w.Origin, s.ID)
	equal(e, "head", w.Head, s.ID)
	equal(e, "contents", e.sh(`cat "$1/f"`, e.mount("copy")), "one")
	_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: "other", Source: "unknown"})
	e.wants(err, sandbox.ErrNotFound, "unknown")
}

func testCreateRefuses(e *env) {
	at := e.up("w")
	e.sh(`mkdir "$1/d"`, at)
	inner := e.mkdir("outer")
	link := filepath.Join(e.dir, "into")
	if err := os.Symlink(at+"/d", link); err != nil {
		e.Fatal(err)
	}
	e.create("v", "")
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "v", Mountpoint: inner + "/m", MakeMountpoint: true}))
	for _, bad := range []struct {
		source string
		class  error
		says   string
	}{
		{filepath.Join(e.dir, "missing"), sandbox.ErrNotFound, "missing"},
		{"/dev/null", sandbox.ErrInvalid, "/dev/null"},
		{at, sandbox.ErrInvalid, "fork"},
		{at + "/d", sandbox.ErrInvalid, "fork"},
		{link, sandbox.ErrInvalid, "fork"},
		{e.home, sandbox.ErrInvalid, "home"},
		{e.home + "/store", sandbox.ErrInvalid, "home"},
		{e.dir, sandbox.ErrInvalid, "home"},
		{inner, sandbox.ErrConflict, "unmount"},
		{"/a\x00b", sandbox.ErrInvalid, ""},
		{strings.Repeat("x", 10000), sandbox.ErrInvalid, ""},
		{"relative/path", sandbox.ErrNotFound, "absolute"},
		{"nosuch", sandbox.ErrNotFound, "no such directory"},
		{"v", sandbox.ErrNotFound, "fork"},
	} {
		_, err := e.api.Create(e.Context(), sandbox.CreateRequest{Name: "new", Source: bad.source})
		e.wants(err, bad.class, bad.says)
	}
	page := must[sandbox.WorkspacePage](e)(e.api.Workspaces(e.Context(), sandbox.ListRequest{}))
	equal(e, "workspaces", len(page.Workspaces), 2)
}
