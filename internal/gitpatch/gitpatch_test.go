package gitpatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// put makes a file in dir as a side of a section says.
func put(t *testing.T, dir string, f File) {
	t.Helper()
	if f.Mode == 0 {
		return
	}
	path := filepath.Join(dir, f.Name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	switch {
	case err != nil:
	case f.Mode == Link:
		err = os.Symlink(string(f.Data), path)
	default:
		err = os.WriteFile(path, f.Data, os.FileMode(f.Mode&0o777))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// list gives what is in dir as git sees it.
func list(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		if d.Type()&os.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			all[name] = "link " + target
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		all[name] = "file " + string(data)
		if fi.Mode()&0o100 != 0 {
			all[name] = "exec " + string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// apply gives a patch to a tool in a directory.
func apply(t *testing.T, dir string, patch []byte, tool ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool[0], tool[1:]...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = dir, bytes.NewReader(patch), time.Second
	// No repository above the directory counts.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%q: %v\n%s\n%s", tool, err, out, patch)
	}
}

func TestSection(t *testing.T) {
	text := func(name, data string) File { return File{Name: name, Mode: Regular, Data: []byte(data)} }
	program := func(name, data string) File { return File{Name: name, Mode: Executable, Data: []byte(data)} }
	link := func(name, target string) File { return File{Name: name, Mode: Link, Data: []byte(target)} }
	long := strings.Repeat("same\nother\n", 50)
	for _, test := range []struct {
		name     string
		old, new File
		stat     Stat
		gitOnly  bool // patch(1) does not do it
	}{
		{"modified", text("f", "a\nb\nc\n"), text("f", "a\nB\nc\nd\n"), Stat{Additions: 2, Deletions: 1}, false},
		{"two hunks", text("f", "x\n"+long+"y\n"), text("f", "X\n"+long+"Y\n"), Stat{Additions: 2, Deletions: 2}, false},
		{"no newline at the end", text("f", "a\nb"), text("f", "a\nc"), Stat{Additions: 1, Deletions: 1}, false},
		{"newline gained", text("f", "a"), text("f", "a\n"), Stat{Additions: 1, Deletions: 1}, false},
		{"new", File{Name: "d/f"}, text("d/f", "a\nb\n"), Stat{Additions: 2}, false},
		{"new and empty", File{Name: "f"}, text("f", ""), Stat{}, false},
		{"new executable", File{Name: "f"}, program("f", "#!/bin/sh\n"), Stat{Additions: 1}, false},
		{"deleted", text("f", "a\n"), File{Name: "f"}, Stat{Deletions: 1}, false},
		{"deleted and empty", text("f", ""), File{Name: "f"}, Stat{}, false},
		{"emptied", text("f", "a\n"), text("f", ""), Stat{Deletions: 1}, false},
		{"filled", text("f", ""), text("f", "a\n"), Stat{Additions: 1}, false},
		{"mode", text("f", "a\n"), program("f", "a\n"), Stat{}, false},
		{"mode of an empty file", text("f", ""), File{Name: "f", Mode: Executable}, Stat{}, false},
		{"renamed", text("a/f", "a\n"), text("b/g", "a\n"), Stat{}, false},
		{"renamed and changed", text("a/f", "a\nb\nc\n"), text("b/g", "a\nb\nC\n"), Stat{Additions: 1, Deletions: 1}, false},
		{"new link", File{Name: "l"}, link("l", "to/there"), Stat{Additions: 1}, false},
		{"link changed", link("l", "a"), link("l", "b"), Stat{Additions: 1, Deletions: 1}, false},
		{"link deleted", link("l", "a"), File{Name: "l"}, Stat{Deletions: 1}, false},
		{"link renamed", link("l", "a"), link("m", "a"), Stat{Additions: 1, Deletions: 1}, false},
		{"file to link", text("f", "a\n"), link("f", "b"), Stat{Additions: 1, Deletions: 1}, false},
		{"name with blanks", text("a b/c d", "a\n"), text("a b/c d", "b\n"), Stat{Additions: 1, Deletions: 1}, false},
		{"blanks at the ends of names", text(" a ", "a\n"), text(" b ", "a\nb\n"), Stat{Additions: 1}, false},
		{"binary, blank before a slash", text("d /f", "a\x00"), File{Name: "d /f"}, Stat{Binary: true}, true},
		{"new and empty, name with blanks", File{Name: "a b/ c d"}, text("a b/ c d", ""), Stat{}, false},
		{"mode, name with blanks", text("a b", "c\n"), File{Name: "a b", Mode: Executable, Data: []byte("c\n")}, Stat{}, false},
		{"renamed, names with blanks", text("a b", "c\n"), text("c  d", "c\n"), Stat{}, false},
		{"mode, name ends in a blank", text("d/a ", "a\n"), program("d/a ", "b\n"), Stat{Additions: 1, Deletions: 1}, false},
		{"unusual names", text("o\377\"q\\", "a\n"), text("t\tab\nline é", "a\nb\n"), Stat{Additions: 1}, false},
		{"latin 1", text("f", "gr\374n\n"), text("f", "gr\374n\nrot\n"), Stat{Additions: 1}, false},
		{"carriage returns", text("f", "a\r\nb\r\n"), text("f", "a\r\nc\r\n"), Stat{Additions: 1, Deletions: 1}, false},
		{"binary", text("f", "a\x00b"), text("f", "a\x00c"), Stat{Binary: true}, true},
		{"new binary", File{Name: "f"}, text("f", "\x00"+strings.Repeat("xyz", 100)), Stat{Binary: true}, true},
		{"binary deleted", text("f", "\x00"), File{Name: "f"}, Stat{Binary: true}, true},
		{"binary to text, executable", text("f", "\x00"), program("g", "t\n"), Stat{Binary: true}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			patch, stat := Section(test.old, test.new, Options{})
			if stat != test.stat {
				t.Errorf("got %+v, want %+v", stat, test.stat)
			}
			if p, again := Section(test.old, test.new, Options{StatOnly: true}); p != nil || again != stat {
				t.Errorf("stat only: %q, %+v", p, again)
			}
			tools := [][]string{{"git", "apply", "-"}, {"git", "apply", "-R", "-"}, {"patch", "-p1", "-s"}}
			if test.gitOnly {
				tools = tools[:2]
			}
			for _, tool := range tools {
				dir, wanted := t.TempDir(), t.TempDir()
				if slices.Contains(tool, "-R") {
					put(t, dir, test.new)
					put(t, wanted, test.old)
				} else {
					put(t, dir, test.old)
					put(t, wanted, test.new)
				}
				apply(t, dir, patch, tool...)
				got, want := list(t, dir), list(t, wanted)
				if len(got) != len(want) {
					t.Errorf("%s: got %q, want %q after\n%s", tool, got, want, patch)
				}
				for name, data := range want {
					if got[name] != data {
						t.Errorf("%s: %q: got %q, want %q after\n%s", tool, name, got[name], data, patch)
					}
				}
			}
		})
	}
}

// TestAsGit compares patches, which have one way to be right, with those of git, byte by byte.
func TestAsGit(t *testing.T) {
	text := func(name, data string) File { return File{Name: name, Mode: Regular, Data: []byte(data)} }
	lines := "package p\n\nfunc f() {\n" + strings.Repeat("\tx++\n", 9)
	for name, test := range map[string]struct{ old, new File }{
		"changed":         {text("f", "a\nb\nc\n"), text("f", "a\nB\nc\n")},
		"heading":         {text("f.x", lines+"\ty\n}\n"), text("f.x", lines+"\tz\n}\n")},
		"long heading":    {text("f", strings.Repeat("h ", 60)+"\n1\n2\n3\n4\n"), text("f", strings.Repeat("h ", 60)+"\n1\n2\n3\n4\n5\n")},
		"new":             {File{Name: "d/f"}, text("d/f", "a\n")},
		"new and empty":   {File{Name: "f"}, text("f", "")},
		"deleted":         {text("f", "a"), File{Name: "f"}},
		"mode":            {text("f", "a\n"), File{Name: "f", Mode: Executable, Data: []byte("a\n")}},
		"mode and text":   {text("f", "a\n"), File{Name: "f", Mode: Executable, Data: []byte("b\n")}},
		"renamed":         {text("a", lines), text("c", lines)},
		"renamed, edited": {text("a", lines+"end\n"), text("b\t\"\\é", lines+"END\n")},
		"new link":        {File{Name: "l"}, File{Name: "l", Mode: Link, Data: []byte("to")}},
		"file to link":    {text("f", "a\n"), File{Name: "f", Mode: Link, Data: []byte("to")}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			git := func(args ...string) string {
				cmd := exec.CommandContext(t.Context(), "git", args...)
				cmd.Dir, cmd.WaitDelay = dir, time.Second
				cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_DIR="+dir+"/.git", "GIT_WORK_TREE="+dir)
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("git %q: %v\n%s", args, err, out)
				}
				return string(out)
			}
			git("init", "-q")
			put(t, dir, test.old)
			git("add", "-A", ".")
			tree := strings.TrimSpace(git("write-tree"))
			if test.old.Mode != 0 {
				if err := os.Remove(filepath.Join(dir, test.old.Name)); err != nil {
					t.Fatal(err)
				}
			}
			put(t, dir, test.new)
			git("add", "-A", ".")
			want := git("diff", "--cached", "--full-index", "--binary", "--find-renames=1%", tree)
			if got, _ := Section(test.old, test.new, Options{}); string(got) != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestLarge(t *testing.T) {
	got, stat := Section(File{"f", Regular, nil, true}, File{"f", Regular, []byte("y"), false}, Options{StatOnly: true})
	if got != nil || !stat.Binary {
		t.Errorf("got %q, %+v", got, stat)
	}
}

// TestGuard: a patch with the guard is one for git, and none for patch(1), which changes nothing.
func TestGuard(t *testing.T) {
	old, new := File{"f", Regular, []byte("a\n"), false}, File{"f", Regular, []byte("b\n"), false}
	patch, _ := Section(old, new, Options{})
	patch = append(Guard("is a test"), patch...)
	dir := t.TempDir()
	put(t, dir, old)
	cmd := exec.CommandContext(t.Context(), "patch", "-p1", "-f")
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = dir, bytes.NewReader(patch), time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if got := list(t, dir); !errors.As(err, &exit) || exit.ExitCode() != 2 || len(got) != 1 || got["f"] != "file a\n" ||
		!strings.Contains(string(out), "which is a test: use 'git apply'") {
		t.Errorf("patch: %v, %q\n%s", err, got, out)
	}
	apply(t, dir, patch, "git", "apply", "-")
	if got := list(t, dir); got["f"] != "file b\n" {
		t.Errorf("git apply: got %q", got)
	}
}

// TestDelta has git apply random changes of binary files, and expects small ones to be short.
func TestDelta(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	dir, want := t.TempDir(), map[string]string{}
	var patch []byte
	for i, size := range []int{1, 15, 16, 17, 300, 70_000, 200_000, 200_000} {
		name := fmt.Sprint("f", i)
		old := append([]byte{0}, random(size)...)
		parts := [][]byte{old}
		for range 3 { // moved, doubled, left out
			a, b := r.IntN(len(old)), r.IntN(len(old))
			parts = append(parts, random(r.IntN(40)), old[min(a, b):max(a, b)])
		}
		now := bytes.Join(parts, nil)
		x, y := File{Name: name, Mode: Regular, Data: old}, File{Name: name, Mode: Regular, Data: now}
		section, _ := Section(x, y, Options{})
		if size > 1000 && len(section) > 2000 {
			t.Errorf("%d bytes for a small change of %d", len(section), size)
		}
		patch = append(patch, section...)
		put(t, dir, x)
		want[name] = "file " + string(now)
	}
	apply(t, dir, patch, "git", "apply", "-")
	if got := list(t, dir); !maps.Equal(got, want) {
		t.Error("git made something else of it")
	}
}

// TestRandomText has git repeat random changes of texts with few different lines, which are the hardest to align.
func TestRandomText(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	random := func() []byte {
		var b bytes.Buffer
		for range r.IntN(60) {
			b.WriteString([]string{"a\n", "b\n", "\n", "c c\n", "}\n"}[r.IntN(5)])
		}
		if r.IntN(4) == 0 {
			b.WriteString("end")
		}
		return b.Bytes()
	}
	dir, want := t.TempDir(), map[string]string{}
	var patch []byte
	for i := range 200 {
		name := strings.Repeat("n", i+1)
		old, new := File{Name: name, Mode: Regular, Data: random()}, File{Name: name, Mode: Regular, Data: random()}
		put(t, dir, old)
		want[name] = "file " + string(new.Data)
		p, _ := Section(old, new, Options{})
		if !bytes.Equal(old.Data, new.Data) {
			patch = append(patch, p...)
		}
	}
	apply(t, dir, patch, "git", "apply", "-")
	got := list(t, dir)
	for name, data := range want {
		if got[name] != data {
			t.Fatalf("%d: got %q, want %q", len(name), got[name], data)
		}
	}
}
