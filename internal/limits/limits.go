// Package limits tells what this process may have of the machine, as far as it is known. It is meant for choosing
// bounds, not for accounting.
package limits

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Threads is how many threads this process may have, as far as it is known: of the machine, of its control groups and,
// without privilege, of its user.
func Threads() int {
	least := 1 << 20
	note := func(n int) {
		if n > 0 {
			least = min(least, n)
		}
	}
	note(readNumber("/proc/sys/kernel/threads-max"))
	note(readNumber("/proc/sys/kernel/pid_max"))
	var r unix.Rlimit
	if os.Geteuid() != 0 && unix.Getrlimit(unix.RLIMIT_NPROC, &r) == nil && r.Cur < uint64(least) {
		note(int(r.Cur))
	}
	for _, dir := range controlGroups("pids") {
		note(readNumber(dir + "/pids.max"))
	}
	return least
}

// Memory is how much memory this process may have, in bytes, as far as it is known: of the machine and of its control
// groups.
var Memory = sync.OnceValue(func() int64 {
	most := int64(1 << 50)
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		most = int64(uint64(si.Totalram) * uint64(si.Unit))
	}
	for _, dir := range controlGroups("memory") {
		for _, name := range []string{"/memory.max", "/memory.limit_in_bytes"} {
			if n := readNumber(dir + name); n > 0 {
				most = min(most, int64(n))
			}
		}
	}
	return most
})

// controlGroups are the directories of this process's control group and those above it, in the hierarchy that has the
// controller.
func controlGroups(controller string) (dirs []string) {
	list, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(list)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, path
		if len(f) < 3 {
			continue
		}
		root := "/sys/fs/cgroup"
		if f[1] != "" {
			if !strings.Contains(","+f[1]+",", ","+controller+",") {
				continue
			}
			root = filepath.Join(root, controller)
		}
		for path := filepath.Clean("/" + f[2]); ; path = filepath.Dir(path) {
			dirs = append(dirs, filepath.Join(root, path))
			if path == "/" {
				break
			}
		}
	}
	return dirs
}

// readNumber reads a file with one number; 0 if there is none: "max".
func readNumber(name string) int {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return 0
	}
	return n
}
