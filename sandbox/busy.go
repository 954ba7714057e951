package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
	copies := h.copiesElsewhere()
	for _, l := range h.allLive() {
		by := strings.TrimPrefix(usedBy(l), " by ")
		if by == "" {
			by = copies[l]
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
	h.eachNamespace(func(v view, mounts mountTable) bool {
		for _, e := range mounts {
			if l.is(e) && (e.point != l.at().path || e.apart && !v.own()) {
				by = copyOf(v)
				return false
			}
		}
		return true
	})
	return by, nil
}

// copiesElsewhere maps mounts to a process that has a copy in its mount namespace, other than ours, which stays there when
// the mount is taken away here.
func (h *Home) copiesElsewhere() map[*live]string {
	copies, all := map[*live]string{}, h.allLive()
	h.eachNamespace(func(v view, mounts mountTable) bool {
		if v.own() {
			return true
		}
		for _, l := range all {
			if slices.ContainsFunc(mounts, func(e mountEntry) bool { return e.apart && l.is(e) }) {
				copies[l] = copyOf(v)
			}
		}
		return true
	})
	return copies
}

func copyOf(v view) string {
	return "a copy in the mount namespace of " + processName(fmt.Sprintf("/proc/%d", v.pid), v.pid)
}
