package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// patchNames are names of files and directories; patches must quote many of them.
var patchNames = []string{
	"a", "b", "c.txt", "dir", "a b", " lead", "trail ", "tab\there", "line\nfeed", `quo"te`, `back\slash`, "é", "\xff\xfe",
	"-p1", "a=>b", "{x}", "\x01\x7f", ".gitattributes", "with,comma", "%s", "dev", "null", "A", "Dir", "\r", "end\n",
	".gitignore", "...", "~", "#", "e\u0301", "'", " ", strings.Repeat("long ", 50),
}

// patchLines are lines of texts, some of which look like those of patches.
var patchLines = []string{
	"a", "b", "", "c c", "}", "\tx ", "gr\xfcn", "--- a/a", "+++ b/b", "-- a/a", "++ b/b", "-- ", "@@ -1 +1 @@",
	"diff --git a/a b/a", "*** a", "** a", "Prereq: 1", `\ No newline at end of file`, "Index: b", "one\rtwo", "\f",
	"GIT binary patch",
}

// patchTree changes a tree at random.
type patchTree struct {
	r     *rand.Rand
	root  string
	plain bool // patch(1) can do most of it: no binary files, no hard links, and no directory where a file was
}

func (p patchTree) pick(all []string) string { return all[p.r.IntN(len(all))] }

// paths lists the directories, the root included, and all else.
func (p patchTree) paths(t *testing.T) (dirs, files []string) {
	err := filepath.WalkDir(p.root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		} else if err == nil {
			files = append(files, path)
		}
		return err
	})
	require.NoError(t, err)
	return dirs, files
}

// contents are those of a text, mostly, with few different lines, or of a binary file.
func (p patchTree) contents() []byte {
	var b bytes.Buffer
	switch n := p.r.IntN(12); {
	case n == 0:
		return nil
	case n == 1:
		return []byte("no newline")
	case n < 4 && !p.plain:
		for range p.r.IntN(3000) {
			b.WriteByte(byte(p.r.Uint32()))
		}
		b.WriteByte(0)
		return b.Bytes()
	}
	end, lines := "\n", 40
	if p.r.IntN(6) == 0 {
		end = "\r\n"
	}
	if p.r.IntN(6) == 0 {
		lines = 400
	}
	for range p.r.IntN(lines) {
		b.WriteString(p.pick(patchLines) + end)
	}
	if p.r.IntN(5) == 0 {
		b.WriteString("end")
	}
	return b.Bytes()
}

// write writes a file, but not into a pipe, where it would wait for who reads.
func (p patchTree) write(path string, data []byte, mode fs.FileMode) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NONBLOCK, mode)
	if err == nil {
		_, _ = f.Write(data)
		_ = f.Close()
	}
}

// edit changes some places of a file.
func (p patchTree) edit(file string) {
	data, err := os.ReadFile(file)
	for range 1 + p.r.IntN(4) {
		if err == nil && len(data) > 0 {
			at := p.r.IntN(len(data))
			data = slices.Concat(data[:at], []byte(p.pick([]string{"new\n", "x", "\n", "\r"})), data[min(len(data), at+p.r.IntN(9)):])
			p.write(file, data, 0o644)
		}
	}
}

// otherCase is a path whose last name has its letters in the other case.
func otherCase(path string) string {
	return filepath.Join(filepath.Dir(path), strings.Map(func(r rune) rune {
		switch {
		case r == unicode.ReplacementChar: // it may be no UTF-8
			return 'r'
		case unicode.IsUpper(r):
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, filepath.Base(path)))
}

// change does one thing; those that the tree does not allow fail and change nothing.
func (p patchTree) change(t *testing.T) {
	dirs, files := p.paths(t)
	dir := p.pick(dirs)
	fresh := filepath.Join(p.pick(dirs), p.pick(patchNames))
	if len(files) < 4 {
		p.write(fresh, p.contents(), 0o644)
		return
	}
	file, second := p.pick(files), p.pick(files)
	fi, err := os.Lstat(file)
	require.NoError(t, err)
	regular := fi.Mode().IsRegular()
	cases, suffix := 19, ""
	if p.plain {
		cases, suffix = 14, ".d"
	}
	switch p.r.IntN(cases) {
	case 0:
		_ = os.Remove(file)
	case 1, 2:
		p.write(fresh, p.contents(), 0o644)
	case 3, 4:
		if regular {
			p.edit(file)
		}
	case 5, 6:
		if os.Rename(file, fresh) == nil && regular && p.r.IntN(2) == 0 {
			p.edit(fresh)
		}
	case 7:
		if dir != p.root {
			_ = os.Rename(dir, fresh+suffix)
		}
	case 8:
		if regular {
			_ = os.Chmod(file, fs.FileMode([]uint32{0o755, 0o644, 0o755, 0o644, 0o600, 0o444, 0o711, 0o611}[p.r.IntN(8)]))
		}
	case 9: // a directory, maybe a deep one
		at := fresh + suffix
		for p.r.IntN(3) == 0 {
			at = filepath.Join(at, p.pick(patchNames)+suffix)
		}
		_ = os.MkdirAll(at, 0o755)
		p.write(filepath.Join(at, p.pick([]string{"in", "x y"})), p.contents(), 0o644)
	case 10: // a link, also where a file was, or the other way round
		at := fresh
		if p.r.IntN(2) == 0 {
			_ = os.Remove(file)
			at = file
		}
		if regular {
			_ = os.Symlink(p.pick([]string{"nowhere", "no where\n", "../out/x", "\xff", ".", strings.Repeat("x/", 900)}), at)
		} else {
			p.write(at, p.contents(), 0o644)
		}
	case 11: // a copy of a file, or of a directory with all that is in it
		from := file
		if p.r.IntN(3) == 0 && dir != p.root {
			from, fresh = dir, fresh+suffix
		}
		shell(t, soon, p.root, `[ -e "$2" ] || [ -L "$2" ] || case "$2/" in "$1"/*) ;; *) cp -a -T -- "$1" "$2" ;; esac`, from, fresh)
	case 12: // only the case of a name, or two names that are exchanged
		switch at := p.pick([]string{file, dir}); {
		case at == p.root:
		case p.r.IntN(2) == 0:
			_ = unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, otherCase(at), unix.RENAME_NOREPLACE)
		case p.plain || p.r.IntN(2) == 0:
			_ = unix.Renameat2(unix.AT_FDCWD, file, unix.AT_FDCWD, second, unix.RENAME_EXCHANGE)
		default:
			_ = unix.Renameat2(unix.AT_FDCWD, at, unix.AT_FDCWD, second, unix.RENAME_EXCHANGE)
		}
	case 13:
		if dir != p.root && p.r.IntN(3) == 0 {
			_ = os.RemoveAll(dir)
		}
	case 14:
		_ = os.Link(file, fresh)
	case 15:
		if dir != p.root && p.r.IntN(3) == 0 {
			_ = os.RemoveAll(dir)
			p.write(dir, p.contents(), 0o644)
		}
	case 16: // a directory, or a link, in the place of a file
		_ = os.Remove(file)
		if p.r.IntN(2) == 0 {
			_ = os.Symlink("gone", file)
		} else {
			_ = os.Mkdir(file, 0o755)
			p.write(filepath.Join(file, "in"), p.contents(), 0o755)
		}
	case 17: // an empty directory
		if p.r.IntN(2) == 0 {
			_ = os.Remove(file)
			fresh = file
		}
		_ = os.Mkdir(fresh, 0o755)
	case 18: // what a patch does not have
		if p.r.IntN(2) == 0 {
			_ = os.Remove(file)
			fresh = file
		}
		_ = unix.Mkfifo(fresh, 0o644)
	}
}

// pipe is what a tree has of one: it is in no patch.
const pipe = "pipe"

// gitTree lists a tree as git knows it, and pipes.
func gitTree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.Name() == ".git" && filepath.Dir(path) == root {
				return fs.SkipDir
			}
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		switch d.Type() {
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			all[name] = "link " + target
			return err
		case fs.ModeNamedPipe:
			all[name] = pipe
			return nil
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = fmt.Sprint("file ", fi.Mode()&0o100 != 0, " ", string(data))
		return err
	})
	require.NoError(t, err)
	return all
}

// patchPart chooses what of two trees a patch is to have, mostly all: options of diff, and what they mean.
func patchPart(r *rand.Rand, a, b map[string]string) (options []string, in func(path string) bool) {
	paths := slices.Concat(slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
	paths = slices.DeleteFunc(paths, func(p string) bool { return !utf8.ValidString(p) }) // which a daemon refuses
	if len(paths) == 0 {
		return nil, func(string) bool { return true }
	}
	path := paths[r.IntN(len(paths))]
	switch r.IntN(8) {
	case 0: // what is in a directory, or one file
		for strings.Contains(path, "/") && r.IntN(2) == 0 {
			path = filepath.Dir(path)
		}
		return []string{"--", path}, func(p string) bool { return strings.HasPrefix(p+"/", path+"/") }
	case 1: // not what has a name
		name := []string{"a", "b", "c.txt", "dir", "in", "A"}[r.IntN(6)]
		return []string{"--exclude", name}, func(p string) bool { return !slices.Contains(strings.Split(p, "/"), name) }
	}
	return nil, func(string) bool { return true }
}

// patched is what a patch from a to b makes of a, if it has what is in a part; possible is whether a tree can be so, and
// git can make it: it removes no directory that was empty, unless a file comes to be in its place.
func patched(
	a map[string]string, empty []string, b map[string]string, in func(path string) bool,
) (tree map[string]string, possible bool) {
	tree, possible = map[string]string{}, true
	for path, was := range a {
		if !in(path) || was == pipe {
			tree[path] = was
		}
	}
	for path, is := range b {
		if in(path) && is != pipe {
			_, met := tree[path]
			possible = possible && !met
			tree[path] = is
		}
	}
	for _, path := range empty { // git would write to another, longer name first
		_, met := tree[path]
		possible = possible && (!met || len(filepath.Base(path)) < 240)
	}
	for _, path := range slices.AppendSeq(empty, maps.Keys(tree)) {
		for at := filepath.Dir(path); at != "."; at = filepath.Dir(at) {
			_, met := tree[at]
			possible = possible && !met
		}
	}
	return tree, possible
}
