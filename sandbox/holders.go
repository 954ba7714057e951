package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"snapfs/internal/processes"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/mountns"

	"golang.org/x/sys/unix"
)

// namedHolders is how many processes a message names.
const namedHolders = 3

// usedBy names processes that keep a mount busy, as " by process 12 (sh) with its working directory, …"; "" if none is
// found. It only reads links in /proc, which the kernel answers without asking the file system that they lead to.
func usedBy(l *live) string {
	var names []string
	processes.Each(func(dir string, pid int) bool {
		if pid != os.Getpid() {
			if how := holds(dir, l); how != "" {
				names = append(names, processName(dir, pid)+" with "+how)
			}
		}
		return len(names) < namedHolders
	})
	if len(names) == 0 {
		return ""
	}
	return " by " + strings.Join(names, ", ")
}

// holds tells what a process has in a mount: one of its directories, an open file or a mapping; "" if nothing.
func holds(dir string, l *live) (how string) {
	inside := func(link string) bool {
		target, err := os.Readlink(filepath.Join(dir, link))
		return err == nil && below(target, l.at().path)
	}
	switch {
	case inside("cwd"):
		return mountns.UsesDirectory
	case inside("root"):
		return mountns.UsesRoot
	case inside("exe"):
		return mountns.UsesProgram
	}
	fds, _ := os.ReadDir(filepath.Join(dir, "fd")) // a process that has ended holds nothing
	for _, fd := range fds {
		if inside("fd/" + fd.Name()) {
			return mountns.UsesFile
		}
	}
	major, minor, ok := strings.Cut(l.device, ":")
	if !ok {
		return ""
	}
	maps, _ := os.ReadFile(filepath.Join(dir, "maps"))
	if strings.Contains(string(maps), fmt.Sprintf(" %s:%s ", hexDevice(major), hexDevice(minor))) {
		return mountns.UsesMapping
	}
	return ""
}

// usersOf names processes that use an overlay of the kernel which is in no mount table, as usedBy does. A child looks:
// this process may serve what the overlay stands on. The id is that of its mount; 0 if it is not known.
func usersOf(ctx context.Context, device string, id uint64) string {
	p, err := mountns.Run(ctx, mountns.Request{Do: mountns.Users, Device: deviceNumber(device), ID: id})
	if err != nil || len(p.Users) == 0 {
		return ""
	}
	var names []string
	for _, u := range p.Users {
		names = append(names, processName(fmt.Sprintf("/proc/%d", u.PID), u.PID)+" with "+u.How)
	}
	return " by " + strings.Join(names, ", ")
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
	if k := l.kernel(); k != nil {
		found, do = "programs still use its mount, or a copy of it", "; end them"
		if by := usersOf(h.ctx, k.device, k.id); by != "" {
			found = "programs still use its mount:" + by
		}
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

// heldBy names what keeps the upper of a kernel mount that this process does not show any more, for a message.
func (h *Home) heldBy(ctx context.Context, w *catalog.Workspace) string {
	if w.Kernel.Device == "" {
		return ""
	}
	return usersOf(ctx, w.Kernel.Device, w.Kernel.ID)
}

func processName(dir string, pid int) string {
	comm, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(comm)))
}
