package scoped

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

func request(path string) api.WorkFileRequest { return api.WorkFileRequest{Path: path} }

// newRoot gives a root, and its path, with a secret beside it.
func newRoot(t *testing.T) (r *Root, dir string) {
	t.Helper()
	above := t.TempDir()
	dir = filepath.Join(above, "root")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(above, "secret"), []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r, dir
}

// TestSwapped: while a program swaps a directory with links that lead out, and moves it up and down, no call leaves the
// root, and each error has a class.
func TestSwapped(t *testing.T) {
	r, dir := newRoot(t)
	for _, d := range []string{"d", "d/x", "deep", "deep/er"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	above := filepath.Dir(dir)
	for name, target := range map[string]string{"up": "..", "abs": above, "top": "/", "far": "../../../../../../../.." + above} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var program sync.WaitGroup
	program.Go(func() {
		at := func(name string) string { return filepath.Join(dir, name) }
		for ctx.Err() == nil {
			for _, link := range []string{"up", "abs", "top", "far"} {
				_ = unix.Renameat2(unix.AT_FDCWD, at("d"), unix.AT_FDCWD, at(link), unix.RENAME_EXCHANGE)
				_ = unix.Renameat2(unix.AT_FDCWD, at("d"), unix.AT_FDCWD, at(link), unix.RENAME_EXCHANGE)
			}
			_ = os.Rename(at("deep/er"), at("er")) // those below it are elsewhere then
			_ = os.Rename(at("er"), at("deep/er"))
		}
	})
	rounds := 10_000
	classes := map[string]int{}
	note := func(err error) {
		word := api.ClassOf(err).Word
		if err == nil {
			word = "done"
		}
		classes[word]++
		if word == "failed" {
			t.Errorf("an error without a class: %v", err)
		}
	}
	for i := range rounds {
		path := []string{"d/secret", "d/../secret", "deep/er/../../secret", "d/x/../../secret", "deep/er/../../../secret"}[i%5]
		var got bytes.Buffer
		var err error
		switch i / 5 % 5 {
		case 0:
			_, err = r.Get(ctx, api.GetFileRequest{WorkFileRequest: request(path)}, &got)
		case 1:
			_, err = r.Put(ctx, api.PutFileRequest{WorkFileRequest: request(path), Size: -1}, TempPrefix+"t", strings.NewReader("put"))
		case 2:
			err = r.Remove(ctx, api.RemoveFileRequest{WorkFileRequest: request(path), Recursive: true})
		case 3:
			err = r.Move(api.MoveFileRequest{WorkFileRequest: request(path), To: "d/moved"})
		case 4:
			err = r.List(ctx, request("d/.."), func(f api.File) error {
				if f.Path == "secret" && f.Size == int64(len("secret")) {
					t.Error("the directory above is listed")
				}
				return nil
			})
		}
		if strings.Contains(got.String(), "secret") {
			t.Fatalf("%s was read", path)
		}
		note(err)
	}
	cancel()
	program.Wait()
	t.Log(classes)
	if text, err := os.ReadFile(filepath.Join(above, "secret")); string(text) != "secret" || err != nil {
		t.Errorf("the secret is %q, %v", text, err)
	}
	if names, err := os.ReadDir(above); len(names) != 2 || err != nil {
		t.Errorf("beside the root: %v, %v", names, err)
	}
	if classes["done"] == 0 || classes["not_found"] == 0 {
		t.Errorf("the calls did not meet both: %v", classes)
	}
}

// TestSpecial: what is no regular file is neither opened nor waited for.
func TestSpecial(t *testing.T) {
	r, dir := newRoot(t)
	for name, mode := range map[string]uint32{"pipe": unix.S_IFIFO, "socket": unix.S_IFSOCK, "device": unix.S_IFCHR, "block": unix.S_IFBLK} {
		if err := unix.Mknod(filepath.Join(dir, name), mode|0o666, int(unix.Mkdev(240, 7))); err != nil {
			t.Skip(err) // needs root
		}
		ctx := t.Context()
		_, get := r.Get(ctx, api.GetFileRequest{WorkFileRequest: request(name)}, io.Discard)
		_, put := r.Put(ctx, api.PutFileRequest{WorkFileRequest: request(name), Size: -1}, TempPrefix+"t", strings.NewReader("x"))
		_, edit := r.Edit(ctx, api.EditFileRequest{WorkFileRequest: request(name), Old: "a"}, TempPrefix+"t")
		_, grep := r.Grep(ctx, api.GrepRequest{WorkFileRequest: request(name), Pattern: "x"}, nil)
		list := r.List(ctx, request(name), nil)
		for what, err := range map[string]error{"get": get, "put": put, "edit": edit, "grep": grep, "list": list} {
			if !errors.Is(err, api.ErrInvalid) {
				t.Errorf("%s %s: %v", what, name, err)
			}
		}
		if f, err := r.Stat(request(name)); err != nil || f.Mode&unix.S_IFMT != mode {
			t.Errorf("stat %s: %+v, %v", name, f, err)
		}
	}
	if _, err := r.Grep(t.Context(), api.GrepRequest{WorkFileRequest: request("/"), Pattern: "x"}, nil); err != nil {
		t.Errorf("grep: %v", err)
	}
}

// TestDeepTree: searches and removals reach what no path of a program does, with few descriptors.
func TestDeepTree(t *testing.T) {
	r, dir := newRoot(t)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const depth = 2100
	for range depth {
		if err := unix.Mkdirat(fd, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		closing(fd)
		fd = next
	}
	closing(fd)
	found := 0
	done, err := r.Glob(t.Context(), api.GlobRequest{WorkFileRequest: request("/"), Pattern: "**/d", Limit: globMost}, func(api.File) error {
		found++
		return nil
	})
	if err != nil || found < 2040 || found > depth || done.Truncated {
		t.Errorf("%d found, %+v, %v", found, done, err)
	}
	if err := r.Remove(t.Context(), api.RemoveFileRequest{WorkFileRequest: request("d"), Recursive: true}); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); len(names) > 0 || err != nil {
		t.Errorf("left: %v, %v", names, err)
	}
}

// TestHugeDirectory: a listing has no names in memory, and can be ended; a search takes so many names and says so.
func TestHugeDirectory(t *testing.T) {
	r, dir := newRoot(t)
	files := 3000
	if os.Getenv("SNAPFS_LONG") != "" {
		files = maxNames + 1000
	}
	for i := range files {
		if err := os.Link(filepath.Join(filepath.Dir(dir), "secret"), filepath.Join(dir, name(i))); errors.Is(err, unix.EMLINK) {
			err = os.WriteFile(filepath.Join(dir, name(i)), nil, 0o600)
			if err != nil {
				t.Fatal(err)
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	if err := r.List(t.Context(), request("/"), func(api.File) error { n++; return nil }); err != nil || n != files {
		t.Errorf("%d listed, %v", n, err)
	}
	enough := errors.New("enough")
	if err := r.List(t.Context(), request("/"), func(api.File) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a listing that was ended: %v", err)
	}
	done, err := r.Glob(t.Context(), api.GlobRequest{WorkFileRequest: request("/"), Pattern: "*none"}, nil)
	if err != nil || done.Truncated != (files > maxNames) || done.Files != int64(min(files, maxNames)) {
		t.Errorf("%+v, %v", done, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Glob(ctx, api.GlobRequest{WorkFileRequest: request("/"), Pattern: "*none"}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func name(i int) string {
	return string([]byte{'a' + byte(i>>15&15), 'a' + byte(i>>10&31), 'a' + byte(i>>5&31), 'a' + byte(i&31)}) + "-of-many"
}

// FuzzPaths: no path has a call do something outside, or fail without a class.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{
		"", "/", ".", "..", "a/../..", "//a//", "\x00", "link/x", "link/../secret", strings.Repeat("../", 100) + "secret",
		strings.Repeat("a", 300), strings.Repeat("a/", 5000), "/proc/self/root", "a/.", "a/..", "a/", "\xff\xfe",
	} {
		f.Add(path, path)
	}
	f.Fuzz(func(t *testing.T, p, q string) {
		r, dir := newRoot(t)
		if err := os.Symlink("../..", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		calls := []func() error{
			func() error { _, err := r.Stat(request(p)); return err },
			func() error { return r.List(ctx, request(p), func(api.File) error { return nil }) },
			func() error {
				_, err := r.Put(ctx, api.PutFileRequest{WorkFileRequest: request(p), Parents: true, Size: -1}, TempPrefix+"t", strings.NewReader("x"))
				return err
			},
			func() error {
				_, err := r.MakeDir(api.MakeDirRequest{WorkFileRequest: request(q), Parents: true})
				return err
			},
			func() error { return r.Move(api.MoveFileRequest{WorkFileRequest: request(p), To: q}) },
			func() error {
				_, err := r.Get(ctx, api.GetFileRequest{WorkFileRequest: request(q)}, io.Discard)
				return err
			},
			func() error {
				return r.Remove(ctx, api.RemoveFileRequest{WorkFileRequest: request(q), Recursive: true})
			},
		}
		for i, call := range calls {
			if err := call(); err != nil && api.ClassOf(err).Word == "failed" {
				t.Errorf("call %d of %q, %q: %v", i, p, q, err)
			}
		}
		if names, err := os.ReadDir(filepath.Dir(dir)); len(names) != 2 || err != nil {
			t.Errorf("%q, %q: beside the root: %v, %v", p, q, names, err)
		}
	})
}

// FuzzPatterns: no pattern makes a search fail without a class, or take long.
func FuzzPatterns(f *testing.F) {
	for _, pattern := range []string{
		"*", "**", "**/*.go", "{a,b}/**/{c,d}", "[", "[^a-z]", "{", "{{a,b},c}", "\\", "\\{", "***/**", "a**b", "{,}{,}{,}", "/../x",
	} {
		f.Add(pattern)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		r, dir := newRoot(t)
		if err := os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755); err != nil {
			t.Fatal(err)
		}
		_, err := r.Glob(t.Context(), api.GlobRequest{WorkFileRequest: request("/"), Pattern: pattern}, func(api.File) error { return nil })
		_, grep := r.Grep(t.Context(), api.GrepRequest{WorkFileRequest: request("/"), Pattern: pattern, Include: pattern},
			func(api.GrepMatch) error { return nil })
		for _, err := range []error{err, grep} {
			if err != nil && !errors.Is(err, api.ErrInvalid) {
				t.Errorf("%q: %v", pattern, err)
			}
		}
	})
}

// TestEditor: pieces of any size give what replacing the whole text gives.
func TestEditor(t *testing.T) {
	text := strings.Repeat("aab", piece/2) + "aa" + strings.Repeat("x", piece) + "aab"
	for _, c := range [][2]string{{"aab", "-"}, {"b", "ccc"}, {"xa", ""}, {"aaba", "y"}, {"none", "z"}} {
		e := &editor{old: []byte(c[0]), new: []byte(c[1]), from: strings.NewReader(text)}
		got, err := io.ReadAll(e)
		if want := strings.ReplaceAll(text, c[0], c[1]); string(got) != want || e.found != strings.Count(text, c[0]) || err != nil {
			t.Errorf("%q: %d bytes, %d found, %v, want %d bytes, %d", c, len(got), e.found, err, len(want), strings.Count(text, c[0]))
		}
	}
}
