package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"snapfs/sandbox/api"
)

// fakeGroups makes directories that look like groups of version 2 and gives the one above them.
func fakeGroups(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"cgroup.freeze": "0", "cgroup.events": "populated 1\nfrozen 1\n"} {
			if err := os.WriteFile(filepath.Join(at, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestOf finds groups by what the kernel says of mounts and processes.
func TestOf(t *testing.T) {
	first, second := fakeGroups(t, "docker/a", "inner"), fakeGroups(t, "docker/a", "inner")
	mounts := func(lines ...string) Hierarchies { return Mounted(strings.Join(lines, "\n")) }
	v1 := "37 31 0:34 / " + first + " rw,relatime - cgroup cgroup rw,freezer"
	v2 := "41 31 0:38 / " + second + " rw,relatime shared:9 - cgroup2 cgroup2 rw"
	part := "41 31 0:38 /docker " + second + "/docker rw - cgroup2 cgroup2 rw"
	other := "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
	for _, c := range []struct {
		name string
		all  Hierarchies
		text string
		want string
	}{
		{"version 2", mounts(other, v2), "0::/docker/a\n", second + "/docker/a"},
		{"both", mounts(v2, v1), "6:freezer:/docker/a\n0::/docker/a\n", first + "/docker/a"},
		{"the root group of version 1", mounts(v1, v2), "6:freezer:/\n0::/docker/a\n", second + "/docker/a"},
		{"several controllers", mounts(v1), "6:pids,freezer:/inner\n", first + "/inner"},
		{"root groups", mounts(v1, v2), "6:freezer:/\n0::/\n", ""},
		{"a part is mounted", mounts(part), "0::/docker/a\n", second + "/docker/a"},
		{"not in the part", mounts(part), "0::/inner\n", ""},
		{"the root of the part", mounts(part), "0::/docker\n", ""},
		{"outside of the namespace", mounts(v2), "0::/../inner\n", ""},
		{"a group that leads out", mounts(part), "0::/docker/../inner\n", ""},
		{"not mounted", mounts(other), "6:freezer:/inner\n0::/inner\n", ""},
		{"a group that is gone", mounts(v2), "0::/gone\n", ""},
		{"no text", mounts("", "x", " - "), "x\n:\n::\n", ""},
	} {
		if got := c.all.Of(c.text); string(got) != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestAbove finds the group of a container whose processes are in several.
func TestAbove(t *testing.T) {
	dir := fakeGroups(t, "a/one", "a/two", "a", "ab")
	group := func(name string) Group { return Group(filepath.Join(dir, name)) }
	for _, c := range []struct {
		groups []Group
		want   Group
	}{
		{nil, ""},
		{[]Group{group("a/one")}, group("a/one")},
		{[]Group{group("a/one"), group("a/one")}, group("a/one")},
		{[]Group{group("a/one"), group("a/two")}, group("a")},
		{[]Group{group("a/one"), group("a")}, group("a")},
		{[]Group{group("a"), group("ab")}, ""}, // dir is none
	} {
		if got := Above(c.groups); got != c.want {
			t.Errorf("%q: %q, want %q", c.groups, got, c.want)
		}
	}
}

// TestOpenRefuses refuses groups by what would be frozen.
func TestOpenRefuses(t *testing.T) {
	dir := fakeGroups(t, "a/below", "a", "b")
	for name, pid := range map[string]int{"a/below": os.Getpid(), "b": 4000000} {
		if err := os.WriteFile(filepath.Join(dir, name, "cgroup.procs"), []byte("1\n"+strconv.Itoa(pid)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, want string }{
		{dir + "/a/below", "serves the workspaces"},
		{dir + "/a", "serves the workspaces"},
		{dir + "/link", "serves the workspaces"},
		{dir + "/b", "asks for it"},
		{dir + "/a/../b", "'..'"},
		{dir + "/a\n/b", "absolute path"},
	} {
		if g, err := Open(c.path, 4000000); !errors.Is(err, api.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v, want %s", c.path, g, err, c.want)
		}
	}
	if g, err := Open(dir + "/b"); err != nil || string(g) != dir+"/b" {
		t.Errorf("another caller: %q, %v", g, err)
	}
}

// TestGroups freezes groups of which one does not freeze, and one is gone.
func TestGroups(t *testing.T) {
	dir := fakeGroups(t, "a", "b")
	all := Parse(dir + "/a\n" + dir + "/b")
	state := func() string {
		text := ""
		for _, g := range all {
			control, err := os.ReadFile(filepath.Join(string(g), "cgroup.freeze"))
			if err != nil {
				t.Fatal(err)
			}
			text += string(control)
		}
		return text
	}
	if err := all.Freeze(t.Context()); err != nil || state() != "11" {
		t.Errorf("frozen: %s, %v", state(), err)
	}
	if err := all.Thaw(); err != nil || state() != "00" {
		t.Errorf("thawed: %s, %v", state(), err)
	}
	if all.String() != dir+"/a\n"+dir+"/b" || len(Parse("")) != 0 {
		t.Errorf("text: %q, %q", all.String(), Parse(""))
	}
	gone := append(Groups{}, all...)
	gone = append(gone, Group(dir+"/gone"))
	if err := gone.Freeze(t.Context()); !errors.Is(err, api.ErrNotFound) || state() != "00" {
		t.Errorf("one is gone: %s, %v", state(), err)
	}
}
