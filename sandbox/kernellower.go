package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/guard"
)

// A lower of kernel mounts is a view (snapshotview.go) of layers that need not be those of a snapshot. It is mounted in
// the home, where services have theirs, and lists leave it out. One serves all workspaces on the same layers: they share
// its page cache and its names. It is found by its record, so that it outlives this process as any mount does.

// lowerPrefix begins the names of lowers.
const lowerPrefix = "kernel"

// lowerOf gives the directory that is to be the lower of a workspace's kernel mount, with the view that is mounted there;
// "" for layers of which there are none. The workspace's record must have the view before unlock is called.
func (h *Home) lowerOf(ctx context.Context, base string) (view, path string, unlock func(), err error) {
	if base == "" {
		return "", filepath.Join(h.dir, emptyDir), func() {}, nil
	}
	if unlock, err = h.lowers.Lock(ctx, base); err != nil {
		return "", "", nil, err
	}
	if view, path, err = h.lowerLocked(ctx, base); err != nil {
		unlock()
		return "", "", nil, err
	}
	return view, path, unlock, nil
}

func (h *Home) lowerLocked(ctx context.Context, base string) (view, path string, err error) {
	mounts, err := readMounts()
	if err != nil {
		return "", "", err
	}
	for _, w := range h.catalog.Workspaces() {
		l := h.liveOf(w.ID)
		if w.Lower && w.Base == base && l != nil && l.reported(mounts) == Mounted {
			return w.ID, l.at().path, nil
		}
	}
	who := asker{access: Access{Session: api.DefaultSession}, session: api.DefaultSession}
	name, unlock, err := h.reserveDerived(who, "", lowerPrefix, "lower")
	if err != nil {
		return "", "", err
	}
	defer unlock()
	foreign := true // setuid programs and devices have no effect where it is mounted
	w := &catalog.Workspace{
		ID: name, Session: who.session, Base: base, View: true, Lower: true, Foreign: &foreign, CreatedAt: h.now(),
		First: h.catalog.NewID(), Source: "layer " + base,
	}
	where := RestoreRequest{
		Mountpoint: ServiceMountpoint(h.dir, name), MakeMountpoint: true, MountOptions: MountOptions{ReadOnly: true},
	}
	if err := h.addMounted(ctx, w, nil, where, nil, nil); err != nil {
		return "", "", err
	}
	return name, where.Mountpoint, nil
}

// isLower refuses what cannot be done with a lower, to who calls it a workspace.
func isLower(w *catalog.Workspace) error {
	return fmt.Errorf("%w: workspaces that the kernel's overlayfs shows stand on %s: it goes with the last of them",
		ErrConflict, w.ID)
}

// leaveLower takes a lower away that no workspace stands on any more.
func (h *Home) leaveLower(ctx context.Context, view string) {
	w := h.catalog.Workspace(view)
	if w == nil || !w.Lower {
		return
	}
	ctx = context.WithoutCancel(ctx)
	unlock, err := h.lowers.Lock(ctx, w.Base)
	if err != nil {
		return
	}
	defer unlock()
	if h.holdsAbandoned(view) {
		return
	}
	for _, other := range h.catalog.Workspaces() {
		if other.Kernel != nil && other.Kernel.View == view {
			return
		}
	}
	unlockView, ok := h.ops.TryLock(view)
	if !ok { // somebody names it: it goes with the next one, or when the home is opened again
		return
	}
	defer unlockView()
	if l := h.liveOf(view); l != nil {
		// Nobody but the overlays has a use for it, and the kernel may still be ending the last.
		if err := l.shown.Load().attached.Unmount(true); err != nil {
			h.log.Warn("what kernel mounts stood on is still there", "workspace", view, "error", err)
			return
		}
		l.waitGone(ctx, detachWait)
	}
	h.dropSnapshotView(ctx, view)
}

// sweepLowers removes the directories of lowers that a crash has left without a record. Nothing uses the home yet.
func (h *Home) sweepLowers() {
	left, err := os.ReadDir(ServiceMountpoint(h.dir, ""))
	if err != nil {
		return // nothing was ever mounted there
	}
	for _, e := range left {
		if !strings.HasPrefix(e.Name(), lowerPrefix+"-lower-") || h.catalog.Workspace(e.Name()) != nil {
			continue
		}
		dir := ServiceMountpoint(h.dir, e.Name())
		if s, err := guard.Look(dir); err == nil && s.Guarded {
			_ = guard.Clear(dir, s.Inode) // else it is not removed, which is told
		}
		if err := hosttree.Rmdir(dir); err != nil {
			h.log.Warn("the directory of a mount that has ended is still there", "directory", dir, "error", err)
		}
	}
}
