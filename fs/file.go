package fs

import (
	"sync"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// Open is declined once; the kernel then opens and closes by itself.
func (a *adapter) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.ENOSYS }

// Flush is declined once: writes reach the server before close, there is nothing to flush.
func (a *adapter) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

// Access is declined once: permissions are the kernel's.
func (a *adapter) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.ENOSYS }

// Ioctl refuses every command as file systems without it do; ENOSYS would reach the caller as it is.
func (a *adapter) Ioctl(<-chan struct{}, *fuse.IoctlIn, []byte, *fuse.IoctlOut, []byte) fuse.Status {
	return fuse.Status(unix.ENOTTY)
}

// Read fills the part of the answer that follows the header, so the contents are copied once, by the kernel.
func (a *adapter) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, err := a.o.Read(layers.NodeID(in.NodeId), buf, int64(in.Offset))
	if err != nil {
		return nil, a.status(err)
	}
	r, _ := a.reads.Get().(*readResult)
	r.data = buf[:n]
	return r, fuse.OK
}

// readResult is a fuse.ReadResult whose bytes are, as a rule, already where the answer wants them.
type readResult struct {
	data []byte
	pool *sync.Pool
}

// Size is how many bytes were read.
func (r *readResult) Size() int { return len(r.data) }

// Bytes gives them without copying.
func (r *readResult) Bytes([]byte) ([]byte, fuse.Status) { return r.data, fuse.OK }

// Readv puts them into the answer, which costs nothing when they are there.
func (r *readResult) Readv(dst [][]byte) (int, fuse.Status) {
	if len(r.data) == 0 {
		return 0, fuse.OK
	}
	rest := r.data
	for _, d := range dst {
		if len(d) > 0 && len(rest) > 0 && &d[0] != &rest[0] {
			copy(d, rest)
		}
		rest = rest[min(len(d), len(rest)):]
	}
	return len(r.data) - len(rest), fuse.OK
}

// Done gives the result back.
func (r *readResult) Done() {
	r.data = nil
	r.pool.Put(r)
}

// Write writes contents that arrived in one piece.
func (a *adapter) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	return a.write(&in.InHeader, in.Offset, in.WriteFlags, data)
}

func (a *adapter) write(h *fuse.InHeader, off uint64, flags uint32, data []byte) (uint32, fuse.Status) {
	r := a.room()
	n, st := a.writeOnce(h, off, flags, data)
	for st == fuse.Status(unix.ENOSPC) && r.wait() {
		n, st = a.writeOnce(h, off, flags, data)
	}
	return n, st
}

func (a *adapter) writeOnce(h *fuse.InHeader, off uint64, flags uint32, data []byte) (uint32, fuse.Status) {
	var killFor *layers.Caller
	if flags&fuse.WRITE_KILL_SUIDGID != 0 {
		c := caller(h, 0)
		killFor = &c
	}
	var n int
	var err error
	if flags&fuse.WRITE_CACHE != 0 && killFor == nil {
		n, err = a.o.WriteBack(layers.NodeID(h.NodeId), data, int64(off))
	} else {
		n, err = a.o.Write(layers.NodeID(h.NodeId), data, int64(off), killFor)
	}
	for err == layers.ErrPrivileged { //nolint:errorlint // never wrapped
		if err = a.demote(h, layers.NodeID(h.NodeId)); err == nil {
			n, err = a.o.Write(layers.NodeID(h.NodeId), data, int64(off), killFor)
		}
	}
	if err != nil {
		return 0, a.status(err)
	}
	return uint32(n), fuse.OK
}

// Lseek finds data and holes.
func (a *adapter) Lseek(_ <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	off, err := a.o.Seek(layers.NodeID(in.NodeId), int64(in.Offset), int(in.Whence))
	if err != nil {
		return a.status(err)
	}
	out.Offset = uint64(off)
	return fuse.OK
}

// Fallocate is fallocate(2).
func (a *adapter) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	if err := a.killPriv(&in.InHeader, layers.NodeID(in.NodeId)); err != nil {
		return a.status(err)
	}
	return a.status(triedOnly(a, func() error {
		return a.on(&in.InHeader).Fallocate(layers.NodeID(in.NodeId), in.Mode, int64(in.Offset), int64(in.Length))
	}))
}

// maxCopy bounds one COPY_FILE_RANGE, whose answer holds 32 bits; the kernel asks again for the rest.
const maxCopy = 1 << 30

// CopyFileRange is copy_file_range(2) within the mount.
func (a *adapter) CopyFileRange(_ <-chan struct{}, in *fuse.CopyFileRangeIn) (uint32, fuse.Status) {
	if err := a.killPriv(&in.InHeader, layers.NodeID(in.NodeIdOut)); err != nil {
		return 0, a.status(err)
	}
	n, err := tried(a, func() (int64, error) {
		return a.o.CopyRange(layers.NodeID(in.NodeId), int64(in.OffIn), layers.NodeID(in.NodeIdOut), int64(in.OffOut),
			int64(min(in.Len, maxCopy)))
	})
	if err != nil {
		return 0, a.status(err)
	}
	return uint32(n), fuse.OK
}

// fsyncDataOnly is FUSE_FSYNC_FDATASYNC.
const fsyncDataOnly = 1

// Fsync makes a file durable.
func (a *adapter) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return a.status(a.o.Fsync(layers.NodeID(in.NodeId), in.FsyncFlags&fsyncDataOnly != 0))
}
