package treefilter

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"snapfs/internal/testseed"
)

// kept lists the files below root that a filter takes.
func kept(t *testing.T, root string, o Options) map[string]bool {
	t.Helper()
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	look, err := f.Lookup(func(dir string) ([]byte, error) {
		text, err := os.ReadFile(filepath.Join(root, dir, IgnoreFile))
		if os.IsNotExist(err) {
			err = nil
		}
		return text, err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		if d.Name() == ".git" {
			return fs.SkipDir
		}
		rel := strings.TrimPrefix(path, root+"/")
		keep, err := look.Keeps(rel, d.IsDir())
		if keep && !d.IsDir() {
			all[rel] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// asGit lists the files that git would add.
func asGit(t *testing.T, root string, exclude []string) map[string]bool {
	t.Helper()
	args := []string{"ls-files", "-z", "--others", "--exclude-per-directory=" + IgnoreFile}
	for _, x := range exclude {
		args = append(args, "--exclude="+x)
	}
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir, cmd.WaitDelay = root, time.Second
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_DIR="+root+"/.git", "GIT_WORK_TREE="+root)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for name := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		if len(name) > 0 {
			all[string(name)] = true
		}
	}
	return all
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAsGit leaves out of random trees with random .gitignore files what git leaves out.
func TestAsGit(t *testing.T) {
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 3))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	name := func() string {
		return pick("a", "b", "ab", "a.o", "b.c", "foo", "foobar", "a b", "x ", "#c", "!d", "[e]", "\xc3\xa9", "\xff", "a-b", "f\\g")
	}
	glob := func() string {
		return pick("*", "*.o", "a*", "?", "??", "[ab]", "[!a]", "[^a]*", "[a-c]", "*a*b", "[[:alpha:]]", "[[:alpha:]!]*", "[]e[]*",
			"\\#c", "\\!d", "#c", "foo**", "**", "**oo*", "\\[e\\]", "[e]", "[", "[a", "a\\", "?[.-]o", "x\\ ", "x ", "f\\\\g", "\xc3?", "[\xff]", name(), name())
	}
	line := func() string {
		parts := []string{glob()}
		for r.IntN(3) == 0 {
			parts = append(parts, glob())
		}
		return pick("", "", "", "!") + pick("", "", "/", "**/") + strings.Join(parts, "/") + pick("", "", "", "/", "/**", " ", "\r")
	}
	rounds := 40
	if os.Getenv("SNAPFS_LONG") != "" || os.Getenv("SNAPFS_HUNT") != "" {
		rounds = 1000
	}
	for round := range rounds {
		root := t.TempDir()
		if err := exec.CommandContext(t.Context(), "git", "init", "-q", root).Run(); err != nil {
			t.Fatal(err)
		}
		dirs := []string{root}
		var rules []string
		for range 12 {
			dir := filepath.Join(pick(dirs...), name()+pick("", ".d"))
			if err := os.Mkdir(dir, 0o755); err == nil {
				dirs = append(dirs, dir)
			}
		}
		for range 40 {
			path := filepath.Join(pick(dirs...), name())
			if _, err := os.Lstat(path); err != nil {
				write(t, path, "")
			}
		}
		for range 1 + r.IntN(3) {
			var lines []string
			for range 1 + r.IntN(5) {
				lines = append(lines, line())
			}
			path := filepath.Join(pick(dirs...), IgnoreFile)
			write(t, path, strings.Join(lines, "\n")+pick("", "\n"))
			rules = append(rules, fmt.Sprintf("%s: %q", strings.TrimPrefix(path, root), lines))
		}
		var exclude []string
		if r.IntN(2) == 0 {
			exclude = []string{strings.TrimSuffix(line(), "\r"), strings.TrimSuffix(line(), "\r")}
		}
		got, want := kept(t, root, Options{Exclude: exclude, GitIgnore: true}), asGit(t, root, exclude)
		if !maps.Equal(got, want) {
			for path := range got {
				if want[path] {
					delete(got, path)
					delete(want, path)
				}
			}
			t.Fatalf("SNAPFS_SEED=%d round %d: %s, --exclude %q:\ntaken %q\nleft out %q", seed, round, strings.Join(rules, "\n"), exclude,
				slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

func TestPaths(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"a/b/c", "a/b2/c", "a/x", "ab/c", "d", "e/f/g"} {
		write(t, filepath.Join(root, path), "")
	}
	for _, test := range []struct{ paths, want string }{
		{"a", "a/b/c a/b2/c a/x"}, {"a/b", "a/b/c"}, {"/a/b/c ./d", "a/b/c d"}, {". d", "a/b/c a/b2/c a/x ab/c d e/f/g"}, {"e//f/", "e/f/g"},
	} {
		f := kept(t, root, Options{Paths: strings.Fields(test.paths), Exclude: []string{"none"}})
		if got := strings.Join(slices.Sorted(maps.Keys(f)), " "); got != test.want {
			t.Errorf("%s: got %s, want %s", test.paths, got, test.want)
		}
	}
	for _, bad := range []string{"..", "a/../b", ""} {
		if _, err := New(Options{Paths: []string{bad}}); err == nil {
			t.Errorf("%q is a path", bad)
		}
	}
	f, _ := New(Options{Paths: []string{"a/x", "gone"}})
	d, _ := f.Root(nil)
	a, _ := d.Below("a", nil)
	if !d.Keep("a", true) || d.Keep("a", false) || !a.Keep("x", false) || f.Missing() != "gone" {
		t.Errorf("missing %q", f.Missing())
	}
	if f, err := New(Options{Paths: []string{"/"}}); f != nil || err != nil {
		t.Errorf("everything: got %v, %v", f, err)
	}
}
