package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/catalog"
)

// A tree is foreign if somebody else may have made it: it comes from an image file, or from a directory that is itself
// mounted without setuid. Its setuid programs would run as root, and its device files would reach the disks, for all
// users of the workspace, so it is mounted nosuid and nodev unless the mount says otherwise. What is made from a
// foreign tree is foreign. A directory that root has imported is not: its programs were where they are now.
//
// Records of earlier versions do not say. There a workspace is foreign if it was made from an image, by its name; what
// was derived from it is so only as long as that workspace is there.

// foreignDir reports whether a directory lies on a file system that is mounted without setuid.
func foreignDir(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, pathError(path, err)
	}
	return st.Flags&unix.ST_NOSUID != 0, nil
}

// foreignSnapshot reports whether the tree of a snapshot comes from elsewhere.
func (h *Home) foreignSnapshot(s *catalog.Snapshot) bool {
	if s.Foreign != nil {
		return *s.Foreign
	}
	w := h.catalog.Workspace(s.Workspace)
	return w != nil && w.Foreign == nil && w.IsForeign()
}

// guarded gives the options with which a workspace is mounted if these are asked for.
func guarded(w *catalog.Workspace, o MountOptions) MountOptions {
	if w.IsForeign() {
		o.NoSUID = o.NoSUID || !o.SUID
		o.NoDev = o.NoDev || !o.Dev
	}
	o.SUID, o.Dev = false, false
	return o
}

// admits refuses a foreign tree beneath a mount that is not made for one. The mount may have been copied to other mount
// name spaces: it cannot be changed afterwards.
func (l *live) admits(foreign bool) error {
	how := l.shown.Load()
	if !foreign || (how.options.NoSUID || how.asked.SUID) && (how.options.NoDev || how.asked.Dev) {
		return nil
	}
	return fmt.Errorf("%w: the snapshot's tree comes from elsewhere, "+
		"and workspace %s is mounted at %s with setuid programs and devices: unmount it first",
		ErrConflict, l.workspace(), l.where())
}
