package fs

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// notifier tells the kernel what changed beneath it. go-fuse's own notifications need its own device loop.
type notifier struct {
	t   transport
	log *slog.Logger
}

// InvalidateNode drops attributes, contents, link target and listing of a node, after writing back what is dirty.
func (n *notifier) InvalidateNode(node layers.NodeID) {
	body := fuse.NotifyInvalInodeOut{Ino: uint64(node), Off: 0, Length: 0} // length 0: to the end
	n.send(fuse.NOTIFY_INVAL_INODE, unsafe.Slice((*byte)(unsafe.Pointer(&body)), unsafe.Sizeof(body)), "")
}

// InvalidateEntry drops what the kernel knows about a name, its absence included.
func (n *notifier) InvalidateEntry(parent layers.NodeID, name string) {
	body := fuse.NotifyInvalEntryOut{Parent: uint64(parent), NameLen: uint32(len(name))}
	n.send(fuse.NOTIFY_INVAL_ENTRY, unsafe.Slice((*byte)(unsafe.Pointer(&body)), unsafe.Sizeof(body)), name+"\x00")
}

// send writes one notification: struct fuse_out_header with the code in place of the error and no request's number.
func (n *notifier) send(code int32, body []byte, tail string) {
	const head = int(unsafe.Sizeof(fuse.OutHeader{}))
	msg := make([]byte, head, head+len(body)+len(tail))
	msg = append(append(msg, body...), tail...)
	binary.NativeEndian.PutUint32(msg[0:], uint32(len(msg)))
	binary.NativeEndian.PutUint32(msg[4:], uint32(-code))
	err := n.t.send(msg)
	// ENOENT: the kernel does not know the node or the name, so there is nothing to drop. ENODEV: it is all gone.
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOTDIR) {
		n.log.Warn("notifying the kernel failed", slog.Int("code", int(code)), slog.String("error", err.Error()))
	}
}
