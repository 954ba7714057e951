package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"snapfs/internal/processes"

	"golang.org/x/sys/unix"
)

// namedHolders is how many processes a message names.
const namedHolders = 3

// usedBy names processes that keep a mount busy, as " by process 12 (sh), …"; "" if none is found. It only reads links
// in /proc, which the kernel answers without asking the file system that they lead to.
func usedBy(l *live) string {
	var names []string
	processes.Each(func(dir string, pid int) bool {
		if pid != os.Getpid() && holds(dir, l) {
			names = append(names, processName(dir, pid))
		}
		return len(names) < namedHolders
	})
	if len(names) == 0 {
		return ""
	}
	return " by " + strings.Join(names, ", ")
}

// holds reports whether a process has its directories, an open file or a mapping in a mount.
func holds(dir string, l *live) bool {
	inside := func(link string) bool {
		target, err := os.Readlink(filepath.Join(dir, link))
		return err == nil && below(target, l.at().path)
	}
	if inside("cwd") || inside("root") || inside("exe") {
		return true
	}
	fds, _ := os.ReadDir(filepath.Join(dir, "fd")) // a process that has ended holds nothing
	for _, fd := range fds {
		if inside("fd/" + fd.Name()) {
			return true
		}
	}
	major, minor, ok := strings.Cut(l.device, ":")
	if !ok {
		return false
	}
	maps, _ := os.ReadFile(filepath.Join(dir, "maps"))
	return strings.Contains(string(maps), fmt.Sprintf(" %s:%s ", hexDevice(major), hexDevice(minor)))
}

// hexDevice spells half of a device number as /proc/PID/maps does.
func hexDevice(decimal string) string {
	n, err := strconv.ParseUint(decimal, 10, 32)
	if err != nil {
		return decimal
	}
	return fmt.Sprintf("%02x", n)
}

// deviceNumber reads a device number as mountinfo has it; 0 for none.
func deviceNumber(text string) uint64 {
	var major, minor uint32
	if _, err := fmt.Sscanf(text, "%d:%d", &major, &minor); err != nil {
		return 0
	}
	return unix.Mkdev(major, minor)
}

// detachedHolder names a process in whose mount namespace a copy of a mount lives, or says that programs use one of the
// kernel's overlayfs, and what can be done.
func (h *Home) detachedHolder(l *live) string {
	found, do := "a copy of its mount lives in another mount namespace", "; end that, or unmount with force"
	if l.kernel() != nil {
		found, do = "programs still use its mount, or a copy of it", "; end them"
	}
	h.eachNamespace(func(v view, mounts mountTable) bool {
		if !slices.ContainsFunc(mounts, l.is) {
			return true
		}
		found = "a copy of its mount lives in the mount namespace of " + processName(fmt.Sprintf("/proc/%d", v.pid), v.pid)
		return false
	})
	return found + do
}

func processName(dir string, pid int) string {
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(comm)))
}
