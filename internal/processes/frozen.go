package processes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StandsStill says of a process that is stopped by a signal or in a debugger, or frozen, what lets it go on, in words that
// follow its number; "" of any other, and of one that is not visible here. Safe for concurrent use.
func StandsStill(pid int) string {
	if pid <= 0 {
		return ""
	}
	if s, _ := StatOfProcess(pid); s.State == 'T' || s.State == 't' {
		return fmt.Sprintf(": 'kill -CONT %d'", pid)
	}
	g := frozenBy(pid)
	if g == "" {
		return ""
	}
	return fmt.Sprintf(" is in the frozen control group %s: '%s'", g, thawCommand(g))
}

// mountRoots are where the hierarchies are mounted by which processes can be frozen, by their controllers: version 2,
// also beside version 1, and the freezer of version 1.
var mountRoots = map[string][]string{
	"":        {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
	"freezer": {"/sys/fs/cgroup/freezer"},
}

// frozenBy gives the directory of the control group whose freezing has a process stand still, "" if none has, or none
// that is visible here.
func frozenBy(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		// ID:CONTROLLERS:PATH; a path outside of the cgroup namespace begins with /..
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) < 3 || strings.HasPrefix(f[2], "/..") {
			continue
		}
		for _, root := range mountRoots[f[1]] {
			if g := frozenAbove(root, f[2]); g != "" {
				return g
			}
		}
	}
	return ""
}

// frozenAbove gives the group that keeps the processes of one frozen: itself, or the nearest one above it that was asked
// to freeze.
func frozenAbove(root, path string) string {
	group := filepath.Join(root, path)
	if !holds(filepath.Join(group, "cgroup.events"), "frozen 1") && !holds(filepath.Join(group, "freezer.state"), "FROZEN") {
		return ""
	}
	for at := group; at != root && at != "/"; at = filepath.Dir(at) {
		if holds(filepath.Join(at, "cgroup.freeze"), "1") || holds(filepath.Join(at, "freezer.self_freezing"), "1") {
			return at
		}
	}
	return group
}

// thawCommand is what a person types to have a group go on.
func thawCommand(group string) string {
	if control := filepath.Join(group, "freezer.state"); holds(control, "FROZEN") {
		return "echo THAWED > " + control
	}
	return "echo 0 > " + filepath.Join(group, "cgroup.freeze")
}

// holds reports whether a file has a line.
func holds(file, line string) bool {
	text, _ := os.ReadFile(file) // one that is not there has none
	for l := range strings.Lines(string(text)) {
		if strings.TrimSpace(l) == line {
			return true
		}
	}
	return false
}
