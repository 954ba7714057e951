package apitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"snapfs/sandbox"
)

// in names a path in the workspace w.
func in(path string) sandbox.WorkFileRequest {
	return sandbox.WorkFileRequest{Workspace: "w", Path: path}
}

// put writes a file in the workspace w.
func (e *env) put(path, text string) {
	e.Helper()
	r := sandbox.PutFileRequest{WorkFileRequest: in(path), Parents: true, Size: int64(len(text))}
	must[sandbox.File](e)(e.api.PutFile(e.Context(), r, strings.NewReader(text)))
}

// get reads a file in the workspace w.
func (e *env) get(path string) string {
	e.Helper()
	var b bytes.Buffer
	must[sandbox.File](e)(e.api.GetFile(e.Context(), sandbox.GetFileRequest{WorkFileRequest: in(path)}, &b))
	return b.String()
}

// names lists a directory in the workspace w.
func (e *env) names(path string) string {
	e.Helper()
	var all []string
	err := e.api.ListDir(e.Context(), in(path), func(f sandbox.File) error {
		all = append(all, f.Path)
		return nil
	})
	if err != nil {
		e.Errorf("list %s: %v", path, err)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func testFilesUsed(e *env) {
	at := e.up("w")
	e.sh(`cd "$1"; mkdir d; printf hello > d/f; ln -s /d/f link; ln -s nowhere dead; mkfifo pipe; printf x > "$(printf 'raw\377')"`, at)
	f := must[sandbox.File](e)(e.api.StatFile(e.Context(), in("d/f")))
	equal(e, "path", f.Path, "/d/f")
	equal(e, "size", f.Size, 5)
	equal(e, "mode", f.Mode, 0o100644)
	f = must[sandbox.File](e)(e.api.StatFile(e.Context(), in("/link")))
	equal(e, "size through a link", f.Size, 5)
	link := in("/link")
	link.NoFollow = true
	f = must[sandbox.File](e)(e.api.StatFile(e.Context(), link))
	equal(e, "target", f.Target, "/d/f")
	equal(e, "names", e.names("/"), "d dead link pipe raw\xff")
	equal(e, "contents through a link", e.get("link"), "hello")
	var b bytes.Buffer
	part := sandbox.GetFileRequest{WorkFileRequest: in("d/f"), Offset: 1, Length: 3}
	must[sandbox.File](e)(e.api.GetFile(e.Context(), part, &b))
	equal(e, "a range", b.String(), "ell")

	must[sandbox.File](e)(e.api.MakeDir(e.Context(), sandbox.MakeDirRequest{WorkFileRequest: in("a/b/c"), Parents: true, Mode: 0o700}))
	equal(e, "directories", e.sh(`cd "$1"; stat -c %a a a/b a/b/c`, at), "755\n755\n700")
	_, err := e.api.MakeDir(e.Context(), sandbox.MakeDirRequest{WorkFileRequest: in("a/b/c")})
	e.wants(err, sandbox.ErrConflict, "a/b/c")
	must[sandbox.File](e)(e.api.MakeDir(e.Context(), sandbox.MakeDirRequest{WorkFileRequest: in("a/b/c"), Parents: true}))
	_, err = e.api.MakeDir(e.Context(), sandbox.MakeDirRequest{WorkFileRequest: in("d/f"), Parents: true})
	e.wants(err, sandbox.ErrConflict)

	move := func(from, to string, noReplace bool) error {
		return e.api.MoveFile(e.Context(), sandbox.MoveFileRequest{WorkFileRequest: in(from), To: to, NoReplace: noReplace})
	}
	e.wants(move("d/f", "link", true), sandbox.ErrConflict, "link")
	if err := errors.Join(move("d/f", "a/g", false), move("a", "z", true)); err != nil {
		e.Error(err)
	}
	equal(e, "moved", e.sh(`cat "$1/z/g"`, at), "hello")
	remove := func(path string, all bool) error {
		return e.api.RemoveFile(e.Context(), sandbox.RemoveFileRequest{WorkFileRequest: in(path), Recursive: all})
	}
	e.wants(remove("z", false), sandbox.ErrConflict, "z")
	e.wants(remove("no", true), sandbox.ErrNotFound, "no")
	e.wants(remove("/", true), sandbox.ErrInvalid)
	if err := errors.Join(remove("z", true), remove("link", false), remove("d", false)); err != nil {
		e.Error(err)
	}
	equal(e, "left", e.names("."), "dead pipe raw\xff")
}

func testFilesPut(e *env) {
	at := e.up("w")
	put := func(r sandbox.PutFileRequest, body io.Reader) error {
		_, err := e.api.PutFile(e.Context(), r, body)
		return err
	}
	e.put("/new/f", "one")
	equal(e, "a new file", e.sh(`cd "$1"; cat new/f; stat -c ' %a' new/f`, at), "one 644")
	e.sh(`cd "$1"; chmod 4751 new/f; chown 12:34 new/f; chmod 4751 new/f; setfattr -n user.a -v b new/f; ln -s new/f link; ln -s to/come dangling`, at)
	e.put("link", "two")
	equal(e, "what is kept", e.sh(`cd "$1"; cat link; stat -c ' %a %u %g %F' new/f; getfattr --only-values -n user.a new/f; readlink link`, at),
		"two 4751 12 34 regular file\nbnew/f")
	e.put("dangling", "three")
	equal(e, "through a dangling link", e.get("/to/come"), "three")
	link := in("dangling")
	link.NoFollow = true
	if err := put(sandbox.PutFileRequest{WorkFileRequest: link, Size: -1, Mode: 0o600}, strings.NewReader("four")); err != nil {
		e.Error(err)
	}
	equal(e, "a link replaced", e.sh(`cd "$1"; cat dangling to/come; stat -c ' %a' dangling`, at), "fourthree 600")

	e.wants(put(sandbox.PutFileRequest{WorkFileRequest: in("link"), Exclusive: true, Size: -1}, strings.NewReader("")), sandbox.ErrConflict)
	e.wants(put(sandbox.PutFileRequest{WorkFileRequest: in("no/x"), Size: -1}, strings.NewReader("")), sandbox.ErrNotFound)
	e.wants(put(sandbox.PutFileRequest{WorkFileRequest: in("new"), Size: -1}, strings.NewReader("")), sandbox.ErrInvalid, "directory")
	e.wants(put(sandbox.PutFileRequest{WorkFileRequest: in("link"), Size: 10}, strings.NewReader("short")), sandbox.ErrInvalid)
	e.wants(put(sandbox.PutFileRequest{WorkFileRequest: in("link"), Size: 1}, strings.NewReader("long")), sandbox.ErrInvalid)
	broken := errors.New("broken")
	err := put(sandbox.PutFileRequest{WorkFileRequest: in("link"), Size: -1}, io.MultiReader(strings.NewReader("part"), failing{broken}))
	if !errors.Is(err, broken) {
		e.Errorf("a body that fails: %v", err)
	}
	equal(e, "after all that", e.get("link"), "two")
	equal(e, "names", e.sh(`cd "$1"; find . | sort`, at), ".\n./dangling\n./link\n./new\n./new/f\n./to\n./to/come")

	big := strings.Repeat("0123456789abcdef", 1<<16)
	e.put("big", big)
	if e.get("big") != big {
		e.Error("a large file has other contents")
	}
	e.sh(`cmp "$1/big" /dev/fd/0 </dev/null >/dev/null 2>&1 || test "$(wc -c < "$1/big")" = 1048576`, at)

	// Readers see the old contents or the new ones, whole.
	ctx, cancel := context.WithCancel(e.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			if got := e.get("big"); got != big && got != big[:1<<18] {
				e.Errorf("a reader has met %d bytes", len(got))
				return
			}
		}
	})
	for i := range 20 {
		e.put("big", []string{big[:1<<18], big}[i%2])
	}
	cancel()
	reading.Wait()

	// What is cancelled leaves the old contents.
	ctx, cancel = context.WithCancel(e.Context())
	r, w := io.Pipe()
	go func() { // ends with the pipe
		_, _ = io.WriteString(w, "some")
		cancel()
		<-ctx.Done()
		_ = w.CloseWithError(ctx.Err())
	}()
	_, err = e.api.PutFile(ctx, sandbox.PutFileRequest{WorkFileRequest: in("link"), Size: -1}, r)
	if !errors.Is(err, context.Canceled) {
		e.Errorf("cancelled: %v", err)
	}
	equal(e, "after a cancelled call", e.get("link"), "two")
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func testFilesEdit(e *env) {
	at := e.up("w")
	long := strings.Repeat("x", 300_000)
	e.put("f", "a b a\n"+long+"MARK"+long)
	edit := func(old, new string, all bool) (int, error) {
		r, err := e.api.EditFile(e.Context(), sandbox.EditFileRequest{WorkFileRequest: in("f"), Old: old, New: new, All: all})
		return r.Replaced, err
	}
	_, err := edit("a", "c", false)
	e.wants(err, sandbox.ErrConflict, "2 times")
	_, err = edit("no such", "c", false)
	e.wants(err, sandbox.ErrConflict, "does not have")
	_, err = edit("", "c", false)
	e.wants(err, sandbox.ErrInvalid)
	n, err := edit("MARK", "mark it", false)
	if n != 1 || err != nil {
		e.Errorf("%d, %v", n, err)
	}
	n, err = edit("a ", "cc ", true)
	if n != 1 || err != nil {
		e.Errorf("%d, %v", n, err)
	}
	equal(e, "edited", e.get("f"), "cc b a\n"+long+"mark it"+long)
	n, err = edit("x", "", true)
	if n != 600_000 || err != nil {
		e.Errorf("%d, %v", n, err)
	}
	equal(e, "edited", e.sh(`cat "$1/f"`, at), "cc b a\nmark it")
	e.sh(`truncate -s 17M "$1/f"`, at)
	_, err = edit("mark", "", true)
	e.wants(err, sandbox.ErrInvalid, "16777216")
	equal(e, "names", e.names("/"), "f")
}

func testFilesSearched(e *env) {
	at := e.up("w")
	e.sh(`cd "$1"; mkdir -p src/deep .git other; echo 'Hello one' > src/a.go; printf 'no\nhello two\r\n' > src/deep/b.go
		echo 'hello git' > .git/c.go; printf 'hello\0' > other/bin.go; ln -s ../src other/src; echo hello > z.txt`, at)
	glob := func(r sandbox.GlobRequest) (string, bool, error) {
		var all []string
		done, err := e.api.Glob(e.Context(), r, func(f sandbox.File) error { all = append(all, f.Path); return nil })
		return strings.Join(all, " "), done.Truncated, err
	}
	for _, c := range []struct {
		path, pattern string
		hidden        bool
		limit         int
		want          string
		truncated     bool
	}{
		{"/", "**/*.go", false, 0, "/other/bin.go /src/a.go /src/deep/b.go", false},
		{"/", "**/*.go", true, 0, "/.git/c.go /other/bin.go /src/a.go /src/deep/b.go", false},
		{"src", "*", false, 0, "/src/a.go /src/deep", false},
		{"other/src", "**/b.go", false, 0, "/other/src/deep/b.go", false},
		{"/", "{src,other}/*.{go,txt}", false, 0, "/other/bin.go /src/a.go", false},
		{"", "**", false, 2, "/.git /other", true},
		{"", "[sz]*", false, 2, "/src /z.txt", false},
	} {
		got, cut, err := glob(sandbox.GlobRequest{WorkFileRequest: in(c.path), Pattern: c.pattern, Hidden: c.hidden, Limit: c.limit})
		if got != c.want || cut != c.truncated || err != nil {
			e.Errorf("glob %s in %s: got %q, %v, %v, want %q, %v", c.pattern, c.path, got, cut, err, c.want, c.truncated)
		}
	}
	for _, bad := range []string{"", "[", "{a", "../*", strings.Repeat("{a,b}", 20), strings.Repeat("a", 2000)} {
		_, _, err := glob(sandbox.GlobRequest{WorkFileRequest: in("/"), Pattern: bad})
		e.wants(err, sandbox.ErrInvalid)
	}
	grep := func(r sandbox.GrepRequest) (string, sandbox.SearchResult, error) {
		var all []string
		done, err := e.api.Grep(e.Context(), r, func(m sandbox.GrepMatch) error {
			all = append(all, fmt.Sprintf("%s:%d:%s", m.Path, m.Line, m.Text))
			return nil
		})
		return strings.Join(all, " "), done, err
	}
	got, done, err := grep(sandbox.GrepRequest{WorkFileRequest: in("/"), Pattern: "hel+o"})
	if got != "/src/deep/b.go:2:hello two /z.txt:1:hello" || done.Truncated || done.Files != 4 || err != nil {
		e.Errorf("grep: %q, %+v, %v", got, done, err)
	}
	got, done, err = grep(sandbox.GrepRequest{WorkFileRequest: in("/"), Pattern: "^HELLO", IgnoreCase: true, Include: "*.go", Hidden: true})
	if got != "/.git/c.go:1:hello git /src/a.go:1:Hello one /src/deep/b.go:2:hello two" || done.Files != 4 || err != nil {
		e.Errorf("grep: %q, %+v, %v", got, done, err)
	}
	got, done, err = grep(sandbox.GrepRequest{WorkFileRequest: in("/"), Pattern: ".", Include: "src/**", Limit: 1})
	if got != "/src/a.go:1:Hello one" || !done.Truncated || err != nil {
		e.Errorf("grep: %q, %+v, %v", got, done, err)
	}
	got, _, err = grep(sandbox.GrepRequest{WorkFileRequest: in("z.txt"), Pattern: "l"})
	if got != "/z.txt:1:hello" || err != nil {
		e.Errorf("grep of a file: %q, %v", got, err)
	}
	_, _, err = grep(sandbox.GrepRequest{WorkFileRequest: in("/"), Pattern: "("})
	e.wants(err, sandbox.ErrInvalid)
}

func testFilesWatched(e *env) {
	at := e.up("w")
	e.sh(`mkdir -p "$1/d/sub"; echo > "$1/d/old"`, at)
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	events := make(chan sandbox.FileEvent, 1000)
	go func() { // ends with ctx or the mount, awaited below
		r := sandbox.WatchFilesRequest{WorkFileRequest: in("d"), Recursive: true}
		ended <- e.api.WatchFiles(ctx, r, func() { close(ready) }, func(v sandbox.FileEvent) error {
			events <- v
			return nil
		})
	}()
	select {
	case <-ready:
	case err := <-ended:
		e.Fatalf("watch: %v", err)
	}
	wait := func(want string) {
		e.Helper()
		late := time.NewTimer(shellTime)
		defer late.Stop()
		for {
			select {
			case v := <-events:
				got := fmt.Sprintf("%s %s %s %v", v.Kind, v.Path, v.OldPath, v.Dir)
				if strings.HasPrefix(got, want) {
					return
				}
				if v.Kind != sandbox.FileModified {
					e.Errorf("got %s, want %s", got, want)
				}
			case err := <-ended:
				e.Fatalf("the watch ended: %v", err)
			case <-late.C:
				e.Fatalf("no event %s", want)
			}
		}
	}
	e.sh(`echo x > "$1/d/sub/new"`, at)
	wait("created /d/sub/new  false")
	e.sh(`mv "$1/d/sub" "$1/d/bus"; echo y >> "$1/d/bus/new"`, at)
	wait("renamed /d/bus /d/sub true")
	wait("modified /d/bus/new")
	e.sh(`mkdir -p "$1/d/x/y"; echo > "$1/d/x/y/z"`, at)
	wait("created /d/x  true")
	wait("created /d/x/y  true")
	wait("created /d/x/y/z  false")
	e.put("d/old", "new contents")
	wait("modified /d/old")
	e.put("d/put", "new")
	wait("created /d/put")
	e.sh(`rm "$1/d/old"; mv "$1/d/put" "$1/away"`, at)
	wait("deleted /d/old")
	wait("deleted /d/put")
	e.snapshot("w", "s")
	must[sandbox.RollbackResult](e)(e.api.Rollback(e.Context(), sandbox.RollbackRequest{Workspace: "w", Snapshot: "s"}))
	wait("overflow /d")
	e.sh(`echo > "$1/d/x/after"`, at)
	wait("created /d/x/after")
	e.unmount("w") // no call keeps the mount
	e.wants(<-ended, sandbox.ErrConflict, "unmounted")
	err := e.api.WatchFiles(e.Context(), sandbox.WatchFilesRequest{WorkFileRequest: in("d")}, nil, nil)
	e.wants(err, sandbox.ErrConflict, "not mounted")

	e.mount("w")
	ctx, cancel = context.WithCancel(e.Context())
	defer cancel()
	err = e.api.WatchFiles(ctx, sandbox.WatchFilesRequest{WorkFileRequest: in("d")}, cancel, nil)
	if !errors.Is(err, context.Canceled) {
		e.Errorf("a cancelled watch: %v", err)
	}
	equal(e, "names", e.names("d"), "bus x")
}

func testFilesRefuse(e *env) {
	e.create("w", "")
	_, err := e.api.StatFile(e.Context(), in("/"))
	e.wants(err, sandbox.ErrConflict, "not mounted")
	at := e.mount("w")
	e.sh(`cd "$1"; mkfifo pipe; mknod null c 1 3; mkdir d; echo x > d/f; ln -s loop loop`, at)
	for _, bad := range []struct {
		path  string
		class error
	}{
		{"no", sandbox.ErrNotFound},
		{"d/f/x", sandbox.ErrNotFound},
		{"loop", sandbox.ErrInvalid},
		{"loop/x", sandbox.ErrInvalid},
		{"d", sandbox.ErrInvalid},
		{"pipe", sandbox.ErrInvalid},
		{"null", sandbox.ErrInvalid},
		{"a\x00b", sandbox.ErrInvalid},
		{"raw\xff", sandbox.ErrInvalid},
		{strings.Repeat("n", 300), sandbox.ErrInvalid},
		{strings.Repeat("n", 10_000), sandbox.ErrInvalid},
		{strings.Repeat("d/", 10_000), sandbox.ErrInvalid},
	} {
		_, err := e.api.GetFile(e.Context(), sandbox.GetFileRequest{WorkFileRequest: in(bad.path)}, io.Discard)
		e.wants(err, bad.class)
		if bad.path == "d" || bad.path == "no" {
			continue
		}
		_, err = e.api.PutFile(e.Context(), sandbox.PutFileRequest{WorkFileRequest: in(bad.path), Size: -1}, strings.NewReader("x"))
		e.wants(err, bad.class)
	}
	e.wants(e.api.ListDir(e.Context(), in("d/f"), nil), sandbox.ErrInvalid)
	_, err = e.api.GetFile(e.Context(), sandbox.GetFileRequest{WorkFileRequest: in("d/f"), Offset: -1}, io.Discard)
	e.wants(err, sandbox.ErrInvalid)

	other := in("d/f")
	other.Session = "other"
	_, err = e.api.StatFile(e.Context(), other)
	e.wants(err, sandbox.ErrRefused, "another session")
	other.AllowCrossSession = true
	must[sandbox.File](e)(e.api.StatFile(e.Context(), other))
	crossed := 0
	err = e.api.Events(e.Context(), sandbox.EventsRequest{Workspace: "w"}, func(v sandbox.Event) error {
		if v.Kind == sandbox.EventCrossSession {
			crossed++
		}
		return nil
	})
	if err != nil || crossed != 1 {
		e.Errorf("%d events of crossings, %v", crossed, err)
	}

	enough := errors.New("enough")
	if err := e.api.ListDir(e.Context(), in("/"), func(sandbox.File) error { return enough }); !errors.Is(err, enough) {
		e.Errorf("a caller that ends a listing gets %v", err)
	}
	e.unmount("w")
	must[sandbox.Workspace](e)(e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "w", MountOptions: sandbox.MountOptions{ReadOnly: true}}))
	equal(e, "read-only", e.get("d/f"), "x\n")
	_, err = e.api.PutFile(e.Context(), sandbox.PutFileRequest{WorkFileRequest: in("d/f"), Size: -1}, strings.NewReader("y"))
	e.wants(err, sandbox.ErrConflict, "read-only")
}

// testFilesScoped: no path leads out of a workspace, nor into what is mounted in it.
func testFilesScoped(e *env) {
	at := e.up("w")
	e.sh(`cd "$1"; mkdir etc; ln -s /etc/passwd abs; ln -s ../../../../../../etc rel; ln -s / root; mkdir tmp; mount -t tmpfs none tmp
		echo secret > tmp/f; ln -s tmp/f into; ln -s /proc/self/root p`, at)
	defer e.sh(`umount "$1/tmp"`, at)
	for path, class := range map[string]error{
		"abs": sandbox.ErrNotFound, "rel/passwd": sandbox.ErrNotFound, "root/etc/passwd": sandbox.ErrNotFound,
		"../../../../../etc/passwd": sandbox.ErrNotFound, "p/etc/passwd": sandbox.ErrNotFound,
		"tmp": sandbox.ErrRefused, "tmp/f": sandbox.ErrRefused, "into": sandbox.ErrRefused,
	} {
		_, err := e.api.StatFile(e.Context(), in(path))
		e.wants(err, class)
	}
	f := must[sandbox.File](e)(e.api.StatFile(e.Context(), in("root/root/../../root/")))
	equal(e, "mode", f.Mode, 0o40755)
	equal(e, "names", e.names("/"), "abs etc into p rel root tmp")
	e.put("rel/made", "inside")
	equal(e, "a file through a link to outside", e.sh(`cat "$1/etc/made"`, at), "inside")
	remove := func(path string) error {
		return e.api.RemoveFile(e.Context(), sandbox.RemoveFileRequest{WorkFileRequest: in(path), Recursive: true})
	}
	e.wants(remove("tmp"), sandbox.ErrConflict)
	e.sh(`mkdir "$1/dir"; mkdir "$1/dir/m"; mount --bind "$1/tmp" "$1/dir/m"`, at)
	e.wants(remove("dir"), sandbox.ErrConflict)
	e.sh(`umount "$1/dir/m"`, at)
	equal(e, "what is mounted", e.sh(`cat "$1/tmp/f"`, at), "secret")
	for _, pattern := range []string{"**", "tmp/*", "*/f"} {
		_, err := e.api.Glob(e.Context(), sandbox.GlobRequest{WorkFileRequest: in("/"), Pattern: pattern}, func(f sandbox.File) error {
			if strings.HasPrefix(f.Path, "/tmp/") {
				e.Errorf("%s finds %s", pattern, f.Path)
			}
			return nil
		})
		if err != nil {
			e.Error(err)
		}
	}
	_, err := e.api.Grep(e.Context(), sandbox.GrepRequest{WorkFileRequest: in("/"), Pattern: "secret"}, func(m sandbox.GrepMatch) error {
		e.Errorf("grep finds %s", m.Path)
		return nil
	})
	if err != nil {
		e.Error(err)
	}
}

// testMountOfService: a workspace can be mounted in the home, at one place, which goes with the mount.
func testMountOfService(e *env) {
	e.create("w", "")
	at := sandbox.ServiceMountpoint(e.home, "w")
	mount := func(at string) error {
		_, err := e.api.Mount(e.Context(), sandbox.MountRequest{Workspace: "w", Mountpoint: at, MakeMountpoint: true})
		return err
	}
	e.wants(mount(at+"/deeper"), sandbox.ErrConflict, "home")
	e.wants(mount(filepath.Dir(at)), sandbox.ErrConflict, "home")
	e.wants(mount(at+"/../../uppers/x"), sandbox.ErrConflict, "home")
	if err := mount(at); err != nil {
		e.Fatal(err)
	}
	e.put("f", "x")
	equal(e, "what programs see", e.sh(`cat "$1/f"`, at), "x")
	must[sandbox.Workspace](e)(e.api.Unmount(e.Context(), sandbox.UnmountRequest{Workspace: "w"}))
	if _, err := os.Lstat(at); !errors.Is(err, os.ErrNotExist) {
		e.Errorf("the mountpoint is left: %v", err)
	}
	if err := mount(at); err != nil {
		e.Fatal(err)
	}
	e.reopen(true)
	equal(e, "mounted again", e.get("f"), "x")
	e.reopen(false)
	if _, err := os.Lstat(at); !errors.Is(err, os.ErrNotExist) {
		e.Errorf("the mountpoint is left: %v", err)
	}
}
