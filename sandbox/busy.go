package sandbox

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"snapfs/internal/processes"

	"github.com/moby/sys/mountinfo"
)

// BusyMount is a mount that programs use.
type BusyMount struct {
	Workspace  string `json:"workspace"`
	Mountpoint string `json:"mountpoint"`
	By         string `json:"by"`             // some of them, as "process 12 (sh)"
	Kept       bool   `json:"kept,omitempty"` // it goes on with a process that follows, see KeepMounts
}

func (b BusyMount) String() string { return b.Workspace + " at " + b.Mountpoint + " by " + b.By }

// Busy lists the mounts that would not end by themselves when the home is closed: programs have open files or
// directories in them, or another mount namespace has a copy that does not follow the mount here. It looks at the
// processes of this pid namespace.
func (h *Home) Busy(ctx context.Context) ([]BusyMount, error) {
	_, end, err := h.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var busy []BusyMount
	copies := copiesElsewhere()
	for _, l := range h.allLive() {
		by := strings.TrimPrefix(usedBy(l), " by ")
		if by == "" {
			by = copies[l.device]
		}
		if by != "" {
			busy = append(busy, BusyMount{Workspace: l.workspace(), Mountpoint: l.at().path, By: by, Kept: h.isKept(l)})
		}
	}
	slices.SortFunc(busy, func(a, b BusyMount) int { return cmp.Compare(a.Workspace, b.Workspace) })
	return busy, nil
}

// UsedBy names what uses the mount of a workspace: a process with open files or directories in it, or one in whose mount
// namespace there is a copy of it, also at another place in this one; "" if there is nothing, or no mount. It is for the
// process itself.
func (h *Home) UsedBy(ctx context.Context, workspace string) (string, error) {
	_, end, err := h.begin(ctx)
	if err != nil {
		return "", err
	}
	defer end()
	l := h.liveOf(workspace)
	if l == nil {
		return "", nil
	}
	if by := strings.TrimPrefix(usedBy(l), " by "); by != "" {
		return by, nil
	}
	by := ""
	eachFUSEMount("", func(dir string, pid int, m *mountinfo.Info) {
		if fmt.Sprintf("%d:%d", m.Major, m.Minor) == l.device && (m.Mountpoint != l.at().path || isApart(m) && !ownNamespace(dir)) {
			by = copyOf(dir, pid)
		}
	})
	return by, nil
}

// copiesElsewhere maps the devices of FUSE mounts to a process that has a copy in its mount namespace, other than ours,
// which stays there when the mount is taken away here.
func copiesElsewhere() map[string]string {
	own, _ := os.Readlink("/proc/self/ns/mnt") // without it, all that is ours is taken for busy
	copies := map[string]string{}
	eachFUSEMount(own, func(dir string, pid int, m *mountinfo.Info) {
		if isApart(m) {
			copies[fmt.Sprintf("%d:%d", m.Major, m.Minor)] = copyOf(dir, pid)
		}
	})
	return copies
}

// isApart reports whether a mount of another namespace stays there when it is taken away in this one.
func isApart(m *mountinfo.Info) bool {
	return !strings.Contains(m.Optional, "shared:") && !strings.Contains(m.Optional, "master:")
}

// ownNamespace reports whether a process is in the mount namespace of this one.
func ownNamespace(dir string) bool {
	own, ownErr := os.Readlink("/proc/self/ns/mnt")
	its, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
	return ownErr == nil && err == nil && own == its
}

func copyOf(dir string, pid int) string {
	return "a copy in the mount namespace of " + processName(dir, pid)
}

// eachFUSEMount calls fn for the FUSE mounts of each mount namespace but one, with a process that is in it.
func eachFUSEMount(but string, fn func(dir string, pid int, m *mountinfo.Info)) {
	seen := map[string]bool{but: true}
	processes.Each(func(dir string, pid int) bool {
		ns, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if err != nil || seen[ns] {
			return true // it has ended
		}
		seen[ns] = true
		f, err := os.Open(filepath.Join(dir, "mountinfo"))
		if err != nil {
			return true
		}
		defer func() { _ = f.Close() }() // opened for reading
		lines := &shortLines{in: bufio.NewReaderSize(f, longestLine)}
		mounts, _ := mountinfo.GetMountsFromReader(lines, mountinfo.FSTypeFilter(mountType))
		for _, m := range mounts {
			fn(dir, pid, m)
		}
		return true
	})
}
