package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// users names the processes that use a directory or something below it, as far as /proc shows them to this user. It
// only reads links of /proc, never the directory itself: a mount in trouble would not answer.
func users(dir string) string {
	inside := func(path string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return "unknown processes"
	}
	var found []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !uses(pid, inside) {
			continue
		}
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)) // empty if the process has ended
		found = append(found, fmt.Sprintf("pid %d (%s)", pid, strings.TrimSpace(string(comm))))
	}
	if len(found) == 0 {
		return "processes that are not visible from here"
	}
	return strings.Join(found, ", ")
}

// uses reports whether a process has its working directory, root, program or an open or mapped file inside.
func uses(pid int, inside func(string) bool) bool {
	proc := fmt.Sprintf("/proc/%d/", pid)
	links := []string{proc + "cwd", proc + "root", proc + "exe"}
	for _, pattern := range []string{proc + "fd/*", proc + "map_files/*"} {
		more, _ := filepath.Glob(pattern) // the pattern is well formed
		links = append(links, more...)
	}
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil && inside(target) {
			return true
		}
	}
	return false
}
