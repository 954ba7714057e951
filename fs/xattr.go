package fs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/layers"
)

const capability = "security.capability"

// GetXAttr reads one attribute. An empty dest asks for the size. Where nothing has any it is declined once.
func (a *adapter) GetXAttr(_ <-chan struct{}, h *fuse.InHeader, name string, dest []byte) (uint32, fuse.Status) {
	if a.o.Attributeless() {
		return 0, fuse.ENOSYS
	}
	v, err := a.o.GetXattr(layers.NodeID(h.NodeId), name)
	if err != nil {
		return 0, a.status(err)
	}
	if len(dest) == 0 && name == capability {
		a.removals.asks(h)
	}
	if len(v) > len(dest) {
		return uint32(len(v)), fuse.ERANGE
	}
	return uint32(copy(dest, v)), fuse.OK
}

// ListXAttr lists names, each ended by a zero byte.
func (a *adapter) ListXAttr(_ <-chan struct{}, h *fuse.InHeader, dest []byte) (uint32, fuse.Status) {
	names, err := a.o.ListXattr(layers.NodeID(h.NodeId))
	if err != nil {
		return 0, a.status(err)
	}
	size := 0
	for _, n := range names {
		size += len(n) + 1
	}
	if size > len(dest) {
		return uint32(size), fuse.ERANGE
	}
	dest = dest[:0]
	for _, n := range names {
		dest = append(append(dest, n...), 0)
	}
	return uint32(size), fuse.OK
}

// SetXAttr sets one attribute. An access ACL set by a caller outside the file's group clears setgid, as on every local
// file system; the kernel knows which callers are outside and leaves the clearing to the server.
func (a *adapter) SetXAttr(_ <-chan struct{}, in *fuse.SetXAttrIn, name string, data []byte) fuse.Status {
	node := layers.NodeID(in.NodeId)
	// The kernel asks for it with default ACLs, too. It comes first, so that no crash leaves both the ACL and setgid.
	if in.SetXAttrFlags&fuse.SETXATTR_ACL_KILL_SGID != 0 && name == "system.posix_acl_access" {
		at, err := a.o.GetAttr(node)
		if err == nil && at.Mode&unix.S_ISGID != 0 {
			_, err = a.o.SetAttr(caller(&in.InHeader, 0), node,
				layers.SetAttr{Valid: layers.SetMode, Mode: at.Mode & 0o7777 &^ unix.S_ISGID})
		}
		if err != nil {
			return a.status(err)
		}
	}
	return a.status(triedOnly(a, func() error { return a.on(&in.InHeader).SetXattr(node, name, data, int(in.Flags)) }))
}

// RemoveXAttr removes one attribute.
func (a *adapter) RemoveXAttr(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	err := triedOnly(a, func() error { return a.on(h).RemoveXattr(layers.NodeID(h.NodeId), name) })
	if err == nil && name == capability {
		a.removals.removes(h)
	}
	return a.status(err)
}
