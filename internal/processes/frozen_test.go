package processes

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFrozenAbove finds the group that was asked to freeze, in trees of plain files.
func TestFrozenAbove(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]string
		want, do string
	}{
		"running":  {map[string]string{"a/b/cgroup.freeze": "0\n", "a/b/cgroup.events": "populated 1\nfrozen 0\n"}, "", ""},
		"freezing": {map[string]string{"a/b/cgroup.freeze": "1\n", "a/b/cgroup.events": "populated 1\nfrozen 0\n"}, "", ""},
		"itself": {map[string]string{
			"a/b/cgroup.freeze": "1\n", "a/b/cgroup.events": "populated 1\nfrozen 1\n", "a/cgroup.freeze": "0\n",
		}, "a/b", "echo 0 > a/b/cgroup.freeze"},
		"above": {map[string]string{
			"a/b/cgroup.freeze": "0\n", "a/b/cgroup.events": "populated 1\nfrozen 1\n", "a/cgroup.freeze": "1\n",
		}, "a", "echo 0 > a/cgroup.freeze"},
		"version 1": {map[string]string{
			"a/b/freezer.state": "FROZEN\n", "a/b/freezer.self_freezing": "0\n",
			"a/freezer.state": "FROZEN\n", "a/freezer.self_freezing": "1\n",
		}, "a", "echo THAWED > a/freezer.state"},
		"no files": {nil, "", ""},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if c.want != "" {
			c.want = filepath.Join(root, c.want)
			c.do = c.do[:len(c.do)-len(lastWord(c.do))] + filepath.Join(root, lastWord(c.do))
		}
		g := frozenAbove(root, "/a/b")
		if g != c.want || g != "" && thawCommand(g) != c.do {
			t.Errorf("%s: %q, %q; want %q, %q", name, g, thawCommand(g), c.want, c.do)
		}
	}
	if g := frozenBy(os.Getpid()); g != "" {
		t.Errorf("this process is frozen by %s", g)
	}
}

func lastWord(s string) string {
	for i := len(s); i > 0; i-- {
		if s[i-1] == ' ' {
			return s[i:]
		}
	}
	return s
}
