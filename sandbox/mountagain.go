package sandbox

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"

	"snapfs/sandbox/internal/catalog"
)

// mountAgain mounts what the last process had mounted, in the mount namespaces in which it was. What was in a namespace
// that is gone is given up. What cannot be mounted stays wanted.
func (h *Home) mountAgain(ctx context.Context) {
	all := h.catalog.Workspaces()
	// What is inside the mount of another comes after that.
	slices.SortStableFunc(all, func(a, b *catalog.Workspace) int { return cmp.Compare(depth(a), depth(b)) })
	for _, w := range all {
		if w.Mount == nil || !w.Mount.Mounted || h.liveOf(w.ID) != nil || ctx.Err() != nil {
			continue
		}
		if w.Lower { // who needs one makes it
			h.giveUp(w)
			continue
		}
		v, ok := h.viewRecorded(w.Mount)
		if !ok {
			h.log.Info("a mount namespace is gone, and the mount with it",
				"workspace", w.ID, "mountpoint", w.Mount.Mountpoint)
			h.giveUp(w)
			continue
		}
		unlock, err := h.ops.Lock(ctx, w.ID)
		if err != nil {
			return
		}
		err = h.mountLocked(context.WithValue(ctx, viewKey{}, v), w.ID, "", w.Mount.Mountpoint, false, w.Mount.Options)
		if err != nil && w.View && ctx.Err() == nil {
			h.giveUp(w) // nobody would know of it
		}
		unlock()
		if err != nil {
			h.log.Error("cannot mount again",
				"workspace", w.ID, "mountpoint", filepath.Clean(w.Mount.Mountpoint), "error", err)
		}
	}
}

// depth is how long the path of a mountpoint is: longer than those of the directories above it.
func depth(w *catalog.Workspace) int {
	if w.Mount == nil {
		return 0
	}
	return len(w.Mount.Mountpoint)
}
