package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/cgroup"
)

// frozenFor are the control groups that are frozen for a paused workspace, or are about to be for one that runs. Earlier
// versions recorded only the one that was named.
func frozenFor(w *catalog.Workspace) cgroup.Groups {
	if w.Freezing == "" && w.Paused {
		return cgroup.Parse(w.Cgroup)
	}
	return cgroup.Parse(w.Freezing)
}

// inOneLine is the text of control groups for people.
func inOneLine(groups string) string { return strings.ReplaceAll(groups, "\n", " ") }

// groupsOf gives the control groups of the processes of a workspace: the one that a call names, else the one that the
// workspace remembers, if it is still there, else those of its containers. The first two are named.
func (h *Home) groupsOf(ctx context.Context, w *catalog.Workspace, name string) (named string, groups cgroup.Groups, err error) {
	if name != "" {
		g, err := openCgroup(ctx, name)
		return string(g), cgroup.Groups{g}, err
	}
	if g := cgroup.Group(w.Cgroup); g != "" && g.Exists() {
		return w.Cgroup, cgroup.Groups{g}, nil
	}
	groups, err = h.containers(ctx, h.liveOf(w.ID))
	return "", groups, err
}

// containers gives the control groups of the containers that have a mount in their mount namespaces; none for callers
// from the network, who might freeze what others have in the same container. Where a user may not freeze one without
// snapfs, it is left alone.
func (h *Home) containers(ctx context.Context, l *live) (cgroup.Groups, error) {
	if l == nil || caller.From(ctx).Remotely() {
		return nil, nil
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	mounts, err := readMounts()
	if err != nil {
		return nil, err
	}
	hierarchies, root := cgroup.Mounted(string(text)), mounts.root()
	within := map[string]string{} // mount namespaces, and the roots of the containers that they belong to
	members := map[string][]cgroup.Group{}
	processes.Each(func(dir string, _ int) bool {
		ns, err := os.Readlink(filepath.Join(dir, "ns/mnt"))
		if err != nil || ns == own {
			return true // it has ended, or is none of a container
		}
		its, seen := within[ns]
		if !seen {
			table, err := readMountinfo(filepath.Join(dir, "mountinfo"))
			if err == nil && table.hasDevice(l.device) {
				its = table.root()
			}
			within[ns] = its
		}
		if its == "" || its == root { // services and sandboxes of the host have its root
			return true
		}
		pids, err := os.Readlink(filepath.Join(dir, "ns/pid"))
		text, readErr := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || readErr != nil {
			return true
		}
		if g := hierarchies.Of(string(text)); g != "" {
			members[its+" "+pids] = append(members[its+" "+pids], g)
		}
		return true
	})
	var groups cgroup.Groups
	for _, some := range members {
		g := cgroup.Above(some)
		if g == "" || !onlyContained(g, own) {
			continue
		}
		g, err := openCgroup(ctx, string(g))
		if errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrRefused) {
			continue // it has the caller in it, has just ended, or is not the user's
		}
		if err != nil {
			return nil, err
		}
		if control, err := g.Control(); err != nil || unix.Access(control, unix.W_OK) != nil {
			continue
		}
		groups = append(groups, g)
	}
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// onlyContained reports whether no process of a control group is in a mount namespace.
func onlyContained(g cgroup.Group, ns string) bool {
	return !slices.ContainsFunc(g.Processes(), func(pid int) bool {
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		return err == nil && its == ns
	})
}

// recordFreezing notes which control groups are about to be frozen for a running workspace, with none that they have
// been thawed. It is not synced: a loss of power leaves no frozen processes.
func (h *Home) recordFreezing(ctx context.Context, name string, groups cgroup.Groups) error {
	text := groups.String()
	if w := h.catalog.Workspace(name); w == nil || w.Freezing == text {
		return nil
	}
	_, err := h.catalog.Update(ctx, false, func(ch *catalog.Change) error {
		if w := h.catalog.Workspace(name); w != nil {
			next := *w
			next.Freezing = text
			ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		}
		return nil
	})
	return err
}

// thawFrozen lets the processes go on that the last process of this home froze for a moment, and did not live to thaw.
func (h *Home) thawFrozen(ctx context.Context) error {
	for _, w := range h.catalog.Workspaces() {
		if w.Freezing == "" || w.Paused {
			continue
		}
		if err := frozenFor(w).Thaw(); err != nil {
			h.log.Warn("processes may still be frozen", "workspace", w.ID, "cgroup", inOneLine(w.Freezing), "error", err)
			continue
		}
		if err := h.recordFreezing(ctx, w.ID, nil); err != nil {
			return err
		}
	}
	return nil
}
