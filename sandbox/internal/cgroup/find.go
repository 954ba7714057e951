package cgroup

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Hierarchies are the places at which the control groups of this machine are mounted that can be frozen.
type Hierarchies []hierarchy

type hierarchy struct {
	controller string // of version 1; "" for version 2
	mount      string // where it is mounted
	root       string // of the mount, in the hierarchy
}

// Mounted reads from the text of a mountinfo file where groups are. The freezer of version 1 comes first: where it is
// mounted beside version 2, engines use it.
func Mounted(mountinfo string) Hierarchies {
	var first, second Hierarchies
	for line := range strings.Lines(mountinfo) {
		own, device, ok := strings.Cut(line, " - ")
		f, d := strings.Fields(own), strings.Fields(device)
		if !ok || len(f) < 5 || len(d) < 3 {
			continue
		}
		at := hierarchy{root: unescape(f[3]), mount: unescape(f[4])}
		switch {
		case d[0] == "cgroup2":
			second = append(second, at)
		case d[0] == "cgroup" && slices.Contains(strings.Split(d[2], ","), "freezer"):
			at.controller = "freezer"
			first = append(first, at)
		}
	}
	return append(first, second...)
}

// unescape reads a path of a mountinfo file.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\134`, `\`).Replace(s)
}

// Of gives the group that a process is in, by the text of its file "cgroup" in /proc; "" if that is the root group, or
// one that is not visible here.
func (all Hierarchies) Of(text string) Group {
	for _, at := range all {
		for line := range strings.Lines(text) {
			// ID:CONTROLLERS:PATH
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
			if len(f) < 3 || f[1] != at.controller && (at.controller == "" || !slices.Contains(strings.Split(f[1], ","), at.controller)) {
				continue
			}
			path, err := filepath.Rel(at.root, f[2])
			if err != nil || path == "." || path == ".." || strings.HasPrefix(path, "../") || slices.Contains(strings.Split(f[2], "/"), "..") {
				continue // the root group, or one outside of the namespace
			}
			g := Group(filepath.Join(at.mount, path))
			if _, _, err := g.files(); err == nil {
				return g
			}
		}
	}
	return ""
}

// Above is the group that has all of some in it: the only one, or the nearest above them. "" if that cannot be frozen,
// such as a root group.
func Above(groups []Group) Group {
	if len(groups) == 0 {
		return ""
	}
	above := string(groups[0])
	for _, g := range groups[1:] {
		for above != "/" && string(g) != above && !strings.HasPrefix(string(g), above+"/") {
			above = filepath.Dir(above)
		}
	}
	g := Group(above)
	if _, _, err := g.files(); err != nil {
		return ""
	}
	return g
}

// Exists reports whether the group can be frozen.
func (g Group) Exists() bool {
	_, _, err := g.files()
	return err == nil
}

// Processes are those in the group and in those below it that are visible here.
func (g Group) Processes() []int {
	var pids []int
	// An error leaves a group that cannot be listed; freezing it will say why.
	_ = filepath.WalkDir(string(g), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" {
			return nil //nolint:nilerr // as above
		}
		procs, _ := os.ReadFile(path)
		for line := range strings.Lines(string(procs)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

// Control is the file that is written to freeze the group.
func (g Group) Control() (string, error) {
	control, _, err := g.files()
	if err != nil {
		return "", fmt.Errorf("cgroup %s: %w", g, err)
	}
	return control, nil
}
