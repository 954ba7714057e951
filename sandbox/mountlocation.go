package sandbox

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	snapfuse "snapfs/fs"
	"snapfs/internal/hosttree"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/guard"
	"snapfs/sandbox/internal/mountns"
	"snapfs/sandbox/internal/peer"
)

// mountLocation is a directory on which something can be mounted.
type mountLocation struct {
	path    string
	fresh   bool   // its last element was made just now
	made    bool   // its last element was made for this mount, or for an earlier one there, and goes with it
	again   bool   // a mount of an earlier process is wanted there
	kept    bool   // that mount has a guard already
	guarded uint64 // inode number of the directory if it is to have a guard while the mount is wanted

	apart   bool // another process attaches the mount, makes the directory and guards it
	view    view
	missing bool // of one that is apart: the directory is to be made

	by  *peer.User // whose rights it is used with; nil: the daemon's
	dir *os.File   // the directory as that user has opened it
}

// owner is for whom something is mounted there.
func (l mountLocation) owner() *snapfuse.Owner {
	if l.by == nil {
		return nil
	}
	return &snapfuse.Owner{UID: l.by.UID, GID: l.by.GID, Dir: l.dir}
}

// close closes the directory.
func (l mountLocation) close() {
	if l.dir != nil {
		_ = l.dir.Close() // nothing was written
	}
}

// leave undoes what was done to the directory for a mount that failed. One that is wanted stays guarded.
func (l mountLocation) leave() {
	l.close()
	if l.apart || l.again && !l.fresh && (l.kept || l.guarded == 0) {
		return
	}
	if l.by != nil {
		if l.fresh {
			_ = l.by.Do(func() error { return hosttree.Rmdir(l.path) }) // as below
		}
		return
	}
	// The error that made us leave is the one to tell.
	_ = guard.Clear(l.path, l.guarded)
	if l.fresh {
		_ = os.Remove(l.path)
	}
}

// prepare completes what is known of a directory on which a workspace is to be mounted. What an earlier mount at the
// same place has left there, after a crash, is as if it were done now.
func (h *Home) prepare(ctx context.Context, w *catalog.Workspace, at location, fresh bool) mountLocation {
	path := at.path
	l := mountLocation{path: path, fresh: fresh, made: fresh && (h.ownPoints || h.isServicePoint(path)), by: peer.From(ctx)}
	earlier := w.Mount
	if earlier != nil && (!earlier.Mounted || earlier.Mountpoint != path || h.copied(earlier.Home)) {
		earlier = nil
	}
	if earlier != nil {
		l.again, l.kept, l.made = true, earlier.Guarded != 0, l.made || earlier.Made
	}
	if at.apart {
		l.apart, l.view, l.missing = true, at.view, at.missing > 0
		if earlier != nil {
			l.guarded = earlier.Guarded
		}
		l.made = l.made || h.ownPoints && l.missing
		return l
	}
	if !h.ownPoints || l.by != nil { // a user's directory has no guard: somebody else's could be there by then
		return l
	}
	s, err := guard.Look(path)
	if err == nil && (!s.Guarded || earlier != nil && earlier.Guarded == s.Inode) {
		l.guarded = s.Inode
	}
	return l
}

// guardLocation has a directory refuse writes from now on, except through what is mounted on it. A directory that
// cannot be guarded is used without.
func (h *Home) guardLocation(l mountLocation) {
	if l.guarded == 0 || l.apart {
		return
	}
	if err := guard.Set(l.path, l.guarded); err != nil && !errors.Is(err, unix.ENOENT) {
		h.log.Debug("a mountpoint has no guard", "mountpoint", l.path, "error", err)
	}
}

// vacate gives the directory of a mount that is not wanted any more back, and removes it if it was made for the mount.
// Nothing is mounted there.
func (h *Home) vacate(m *catalog.Mount) {
	if m == nil || h.copied(m.Home) {
		return
	}
	if m.By != nil {
		if m.Made {
			_ = m.By.Do(func() error { return hosttree.Rmdir(m.Mountpoint) }) // as below
		}
		return
	}
	v, ok := h.viewRecorded(m)
	if !ok && m.Guarded == 0 {
		return
	}
	// The directory may be the same here as in a mount namespace that is gone.
	if !ok || m.Nested || !v.own() {
		r := mountns.Request{Do: mountns.Vacate, Path: m.Mountpoint, Guarded: m.Guarded, Make: m.Made}
		if m.Guarded == 0 && !m.Made {
			return
		}
		if _, err := v.run(context.WithoutCancel(h.ctx), r); err != nil {
			h.log.Warn("a mountpoint is not given back", "mountpoint", m.Mountpoint, "error", err)
		}
		return
	}
	if m.Guarded != 0 {
		if err := guard.Clear(m.Mountpoint, m.Guarded); err != nil {
			h.log.Warn("a mountpoint stays immutable: chattr -i", "mountpoint", m.Mountpoint, "error", err)
		}
		if s, err := guard.Look(m.Mountpoint); err != nil || s.Inode != m.Guarded {
			return // it is not known to be what was made
		}
	}
	if m.Made {
		_ = unix.Rmdir(m.Mountpoint) // what has something in it, or is gone, is not ours to remove
	}
}

// giveUp records that a workspace without a connection is not wanted at its mountpoint any more, and gives that back.
// The caller holds the workspace's lock, or nothing uses the home yet.
func (h *Home) giveUp(w *catalog.Workspace) {
	if w == nil || w.Mount == nil || !w.Mount.Mounted {
		return
	}
	h.vacate(w.Mount)
	h.recordUnmounted(&liveNames{now: w.ID}, w.Mount.Mountpoint)
	h.dropSnapshotView(h.ctx, w.ID)
}

// leaveDetached is giveUp for a workspace whose connection lives on in another mount namespace. The directory stays, even
// if it was made for the mount: to remove it would take the mount away there, too.
func (h *Home) leaveDetached(w *catalog.Workspace) {
	if w == nil || w.Mount == nil || !w.Mount.Mounted {
		return
	}
	stays := *w.Mount
	stays.Made = false
	h.vacate(&stays)
	h.recordUnmounted(&liveNames{now: w.ID}, w.Mount.Mountpoint)
}

// giveUpAll is giveUp for every workspace that has no connection.
func (h *Home) giveUpAll() {
	for _, w := range h.catalog.Workspaces() {
		if h.liveOf(w.ID) == nil {
			h.giveUp(w)
		}
	}
}

// KeepGuards makes Close leave the mountpoints guarded, for a process that follows and mounts there again.
func (h *Home) KeepGuards() { h.keepGuards.Store(true) }

// vacateAll gives back the mountpoints of workspaces that are to be mounted again by the next process, unless they are
// to stay guarded until then.
func (h *Home) vacateAll() {
	if h.catalog == nil || h.keepGuards.Load() {
		return
	}
	for _, w := range h.catalog.Workspaces() {
		if w.Mount != nil && w.Mount.Mounted {
			h.vacate(w.Mount)
		}
	}
}
