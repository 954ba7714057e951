package fs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"snapfs/fs/internal/proto"
	"snapfs/layers"
)

// InvalidateNode makes the kernel ask again for all that it knows of a node: attributes, ACLs, contents, listing. Names
// that lead to it stay known, see InvalidateEntry. That the kernel does not know the node is no error.
//
// All notifications wait for locks that the kernel holds while it waits for an answer of this server: of the
// node's pages and, for names, of the directory. They must not be called while a request is being answered by
// the caller, nor with anything locked that an answer needs, such as the gate of a seal. They work while the mount
// lives, afterwards they do nothing.
func (m *Mount) InvalidateNode(node layers.NodeID) error {
	b := make([]byte, proto.OutHeaderSize, proto.OutHeaderSize+24)
	b = binary.NativeEndian.AppendUint64(b, uint64(node))
	b = binary.NativeEndian.AppendUint64(b, 0) // from the first byte
	b = binary.NativeEndian.AppendUint64(b, 0) // to the last
	return m.notify(proto.NotifyInvalInode, b, "node")
}

// invalidateAttr makes the kernel ask again for a node's attributes. Unlike the other notifications it may be sent
// while a request for the node is being answered: it waits for neither pages nor directories, and the node stays in the
// kernel as long as a program waits.
func (m *Mount) invalidateAttr(node layers.NodeID) error {
	_, err := m.has(node)
	return ignored(err, "node")
}

// InvalidateEntry makes the kernel look a name up again. Programs that watch the directory (inotify) are not told that
// anything has gone. That the kernel does not know the name is no error. See InvalidateNode for when it may be called.
func (m *Mount) InvalidateEntry(parent layers.NodeID, name string) error {
	return m.invalidateEntry(parent, name, 0)
}

// ExpireEntry makes the kernel look a name up again before it is used the next time. It costs a third of what
// InvalidateEntry costs, because the kernel keeps the node that the name led to, and its pages, until then; kernels
// before Linux 6.2 do not.
func (m *Mount) ExpireEntry(parent layers.NodeID, name string) error {
	return m.invalidateEntry(parent, name, proto.ExpireOnly)
}

func (m *Mount) invalidateEntry(parent layers.NodeID, name string, flags uint32) error {
	b := make([]byte, proto.OutHeaderSize, proto.OutHeaderSize+17+len(name))
	b = binary.NativeEndian.AppendUint64(b, uint64(parent))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(name)))
	b = binary.NativeEndian.AppendUint32(b, flags)
	return m.notify(proto.NotifyInvalEntry, append(append(b, name...), 0), "name")
}

// DeleteEntry is InvalidateEntry for a name that is gone, of a node that has no further use: programs that
// watch the directory are told. Where the name leads to another node by now, it is just looked up again.
func (m *Mount) DeleteEntry(parent, child layers.NodeID, name string) error {
	b := make([]byte, proto.OutHeaderSize, proto.OutHeaderSize+25+len(name))
	b = binary.NativeEndian.AppendUint64(b, uint64(parent))
	b = binary.NativeEndian.AppendUint64(b, uint64(child))
	b = binary.NativeEndian.AppendUint32(b, uint32(len(name)))
	b = binary.NativeEndian.AppendUint32(b, 0)
	return m.notify(proto.NotifyDelete, append(append(b, name...), 0), "name")
}

// notify completes the header and sends.
func (m *Mount) notify(code int32, b []byte, what string) error {
	if len(b) > math.MaxInt16 {
		return unix.ENAMETOOLONG
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint32(b[4:], uint32(code))
	return ignored(m.conn.Notify(b), what)
}

// ignored leaves those errors out that say that nothing was to be done.
func ignored(err error, what string) error {
	if err == nil || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) { // unknown to the kernel; unmounted
		return nil
	}
	return fmt.Errorf("invalidate a %s: %w", what, err)
}
