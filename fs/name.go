package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/layers"
)

// Create is declined once: the kernel then makes regular files by Mknod, which costs as much and leaves no handle to
// release. The file is opened with whatever mode it got, as the kernel knows that it made it.
func (a *adapter) Create(<-chan struct{}, *fuse.CreateIn, string, *fuse.CreateOut) fuse.Status {
	return fuse.ENOSYS
}

// Mknod makes a file of any type but directory and symlink.
func (a *adapter) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	e, err := tried(a, func() (layers.Entry, error) {
		c := caller(&in.InHeader, in.Umask)
		return a.on(&in.InHeader).Mknod(c, layers.NodeID(in.NodeId), name, in.Mode, uint64(in.Rdev))
	})
	return a.entry(out, e, err)
}

// Tmpfile makes a file without a name. The open file that the kernel makes of the answer needs no handle, as any other.
func (a *adapter) Tmpfile(_ <-chan struct{}, in *fuse.CreateIn, out *fuse.CreateOut) fuse.Status {
	e, err := tried(a, func() (layers.Entry, error) {
		return a.on(&in.InHeader).Tmpfile(caller(&in.InHeader, in.Umask), layers.NodeID(in.NodeId), in.Mode)
	})
	return a.entry(&out.EntryOut, e, err)
}

// Mkdir makes a directory.
func (a *adapter) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	e, err := tried(a, func() (layers.Entry, error) {
		return a.on(&in.InHeader).Mkdir(caller(&in.InHeader, in.Umask), layers.NodeID(in.NodeId), name, in.Mode)
	})
	return a.entry(out, e, err)
}

// Symlink makes a symbolic link.
func (a *adapter) Symlink(_ <-chan struct{}, h *fuse.InHeader, target, name string, out *fuse.EntryOut) fuse.Status {
	e, err := tried(a, func() (layers.Entry, error) {
		return a.on(h).Symlink(caller(h, 0), layers.NodeID(h.NodeId), name, target)
	})
	return a.entry(out, e, err)
}

// Link makes a hard link, also of a file that has no name (O_TMPFILE).
func (a *adapter) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	e, err := tried(a, func() (layers.Entry, error) {
		return a.on(&in.InHeader).Link(layers.NodeID(in.Oldnodeid), layers.NodeID(in.NodeId), name)
	})
	return a.entry(out, e, err)
}

// Unlink removes a non-directory.
func (a *adapter) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return a.status(triedOnly(a, func() error { return a.on(h).Unlink(layers.NodeID(h.NodeId), name) }))
}

// Rmdir removes an empty directory.
func (a *adapter) Rmdir(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return a.status(triedOnly(a, func() error { return a.on(h).Rmdir(layers.NodeID(h.NodeId), name) }))
}

// Rename serves RENAME, whose flags are zero, and RENAME2.
func (a *adapter) Rename(_ <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	return a.status(triedOnly(a, func() error {
		return a.on(&in.InHeader).Rename(layers.NodeID(in.NodeId), oldName, layers.NodeID(in.Newdir), newName, in.Flags)
	}))
}
