package sandbox

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// What is said where a name leads nowhere: what it is instead, or which names are close to it.

const (
	// suggestAmong bounds the names that a missing one is compared with.
	suggestAmong = 1000
	// suggestMost is how many close names are listed.
	suggestMost = 3
)

// noWorkspace says that there is no workspace of a name.
func (h *Home) noWorkspace(who asker, name string) error {
	if found, _ := h.allowed(who, h.catalog.FindSnapshots(name, false)); len(found) > 0 {
		return fmt.Errorf("%w: workspace %s: that is a snapshot, %s: branch it for a workspace",
			ErrNotFound, api.Quoted(name), listed(name, found))
	}
	return fmt.Errorf("%w: workspace %s%s", ErrNotFound, api.Quoted(name), didYouMean(name, h.workspaceNames(who)))
}

// noSnapshot says that a reference names no snapshot, in a call that may be about a workspace.
func (h *Home) noSnapshot(who asker, of *catalog.Workspace, ref string) error {
	if h.isWorkspace(who, ref) {
		if w := h.catalog.Workspace(ref); w != nil && w.View && !w.Lower {
			return fmt.Errorf("%w: snapshot %s: that is a view of snapshot %s", ErrNotFound, api.Quoted(ref), w.Origin)
		}
		return fmt.Errorf("%w: snapshot %s: that is a workspace: take a snapshot of it first, or fork it",
			ErrNotFound, api.Quoted(ref))
	}
	names := h.snapshotNames(who, "")
	if of != nil {
		names = append(h.snapshotNames(who, of.ID), names...)
	}
	return fmt.Errorf("%w: snapshot %s%s", ErrNotFound, api.Quoted(ref), didYouMean(ref, names))
}

// noSnapshotOf says that a workspace has no such snapshot.
func (h *Home) noSnapshotOf(who asker, workspace, name string) error {
	names := h.snapshotNames(who, workspace)
	if len(names) == 0 && !h.isWorkspace(who, workspace) {
		return fmt.Errorf("%w: snapshot %s: %w",
			ErrNotFound, api.Quoted(workspace+":"+name), h.noWorkspace(who, workspace))
	}
	return fmt.Errorf("%w: workspace %s has no snapshot %s%s",
		ErrNotFound, workspace, api.Quoted(name), didYouMean(workspace+":"+name, names))
}

// nothing says that a reference names neither a workspace nor a snapshot.
func (h *Home) nothing(who asker, ref string) error {
	names := append(h.workspaceNames(who), h.snapshotNames(who, "")...)
	return fmt.Errorf("%w: no workspace and no snapshot is named %s%s", ErrNotFound, api.Quoted(ref), didYouMean(ref, names))
}

// workspaceNames are those that the asker may use.
func (h *Home) workspaceNames(who asker) []string {
	var names []string
	for w := range h.catalog.ListWorkspaces(query(who.access, who.session, "", "")) {
		if names = append(names, w.ID); len(names) == suggestAmong {
			break
		}
	}
	return names
}

// snapshotNames are those of the snapshots that the asker may use, of one workspace if that is named, each with its
// workspace.
func (h *Home) snapshotNames(who asker, workspace string) []string {
	var names []string
	for s := range h.catalog.ListSnapshots(query(who.access, who.session, workspace, "")) {
		if s.Name == "" {
			continue
		}
		if names = append(names, s.Workspace+":"+s.Name); len(names) == suggestAmong {
			break
		}
	}
	return names
}

// didYouMean lists the names that are close to a word, for the end of a message; "" if none is. A snapshot's name is
// close if it is so with its workspace or without.
func didYouMean(word string, names []string) string {
	type near struct {
		name string
		far  int
	}
	var all []near
	most := 2 // as two letters that are exchanged
	if n := len([]rune(word)); n < 4 || n > 8 {
		most = max(1, n/3)
	}
	for _, name := range names {
		far := levenshtein.ComputeDistance(word, name)
		if _, alone, ok := strings.Cut(name, ":"); ok {
			far = min(far, levenshtein.ComputeDistance(word, alone))
		}
		if far <= most && !slices.ContainsFunc(all, func(n near) bool { return n.name == name }) {
			all = append(all, near{name, far})
		}
	}
	slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(a.far, b.far) })
	var list []string
	for _, n := range all[:min(len(all), suggestMost)] {
		list = append(list, n.name)
	}
	if len(list) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(list, ", ") + "?"
}
