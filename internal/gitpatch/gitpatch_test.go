package gitpatch

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
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
		{"deleted and empty", text("f", ""), File{Name: "f"}, Stat{}, true},
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
		{"mode, name ends in a blank", text("d/a ", "a\n"), program("d/a ", "b\n"), Stat{Additions: 1, Deletions: 1}, false},
		{"unusual names", text("o\377\"q\\", "a\n"), text("t\tab\nline é", "a\nb\n"), Stat{Additions: 1}, false},
		{"latin 1", text("f", "gr\374n\n"), text("f", "gr\374n\nrot\n"), Stat{Additions: 1}, false},
		{"carriage returns", text("f", "a\r\nb\r\n"), text("f", "a\r\nc\r\n"), Stat{Additions: 1, Deletions: 1}, true},
		{"binary", text("f", "a\x00b"), text("f", "a\x00c"), Stat{Binary: true}, true},
		{"new binary", File{Name: "f"}, text("f", "\x00"+strings.Repeat("xyz", 100)), Stat{Binary: true}, true},
		{"binary deleted", text("f", "\x00"), File{Name: "f"}, Stat{Binary: true}, true},
		{"binary to text, executable", text("f", "\x00"), program("g", "t\n"), Stat{Binary: true}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			patch, stat := Section(test.old, test.new, Options{Literal: true})
			if stat != test.stat {
				t.Errorf("got %+v, want %+v", stat, test.stat)
			}
			if p, again := Section(test.old, test.new, Options{StatOnly: true}); p != nil || again != stat {
				t.Errorf("stat only: %q, %+v", p, again)
			}
			want := t.TempDir()
			put(t, want, test.new)
			tools := [][]string{{"git", "apply", "-"}, {"patch", "-p1", "-s"}}
			if test.gitOnly {
				tools = tools[:1]
			}
			for _, tool := range tools {
				dir := t.TempDir()
				put(t, dir, test.old)
				apply(t, dir, patch, tool...)
				got, want := list(t, dir), list(t, want)
				if len(got) != len(want) {
					t.Errorf("%s: got %q, want %q after\n%s", tool[0], got, want, patch)
				}
				for name, data := range want {
					if got[name] != data {
						t.Errorf("%s: %q: got %q, want %q after\n%s", tool[0], name, got[name], data, patch)
					}
				}
			}
		})
	}
}

func TestSectionText(t *testing.T) {
	got, _ := Section(File{"a", Regular, []byte("x\n"), false}, File{"b", Executable, []byte("y\n"), false}, Options{})
	const want = `diff --git a/a b/b
old mode 100644
new mode 100755
rename from a
rename to b
--- a/a
+++ b/b
@@ -1 +1 @@
-x
+y
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	got, stat := Section(File{"f", Regular, nil, true}, File{"f", Regular, []byte("y"), false}, Options{Literal: true})
	if want := "diff --git a/f b/f\nBinary files a/f and b/f differ\n"; string(got) != want || !stat.Binary {
		t.Errorf("large: got %q, %+v", got, stat)
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
