package fs

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/internal/livestate"
	"snapfs/layers"
)

// forever is the timeout of attributes and names, in seconds: nothing but this server changes the tree. Only the names of
// files that others may change yet (layers.Entry.Fleeting) have none.
// The kernel converts it to jiffies and adds it to the clock, so it is large but far from overflow.
const forever = 10 * 365 * 24 * 3600

// adapter is the translation between go-fuse and the overlay. Methods may run concurrently; fields are set before the
// first request and never change, but for reads and removals, which are safe for concurrent use.
type adapter struct {
	fuse.RawFileSystem // what is not defined here answers ENOSYS
	o                  *layers.Overlay
	log                *slog.Logger
	reads              sync.Pool // of *readResult
	m                  *Mount    // nil without one, in tests
	writeback          bool      // the kernel collects writes
	removals           removals
	// forgotten is Mount.forgotten; nil: nobody can be asked.
	forgotten func([]layers.NodeID, time.Duration) bool
	requests  *livestate.Requests // nil: nothing is noted. Set before the first request
	refused   func(Refused)       // as Options.Refused
}

func newAdapter(o *layers.Overlay, log *slog.Logger) *adapter {
	a := &adapter{RawFileSystem: fuse.NewDefaultRawFileSystem(), o: o, log: log}
	a.reads.New = func() any { return &readResult{pool: &a.reads} }
	return a
}

// String names the file system for go-fuse.
func (a *adapter) String() string { return "snapfs" }

func caller(h *fuse.InHeader, umask uint32) layers.Caller {
	return layers.Caller{UID: h.Uid, GID: h.Gid, PID: h.Pid, Umask: umask}
}

func putAttr(out *fuse.Attr, at *layers.Attr) {
	*out = fuse.Attr{
		Ino:       at.Ino,
		Size:      at.Size,
		Blocks:    at.Blocks,
		Atime:     uint64(at.Atime.Sec),
		Mtime:     uint64(at.Mtime.Sec),
		Ctime:     uint64(at.Ctime.Sec),
		Atimensec: at.Atime.Nsec,
		Mtimensec: at.Mtime.Nsec,
		Ctimensec: at.Ctime.Nsec,
		Mode:      at.Mode,
		Nlink:     at.Nlink,
		Owner:     fuse.Owner{Uid: at.UID, Gid: at.GID},
		Rdev:      uint32(at.Rdev), // the kernel's 32-bit encoding is the low half of makedev(3)'s
		Blksize:   at.Blksize,
	}
}

func putEntry(out *fuse.EntryOut, e *layers.Entry) {
	out.NodeId = uint64(e.Node)
	out.Generation = e.Gen
	out.EntryValid, out.EntryValidNsec = forever, 0
	if e.Fleeting {
		out.EntryValid = 0 // each look-up asks again, and brings the attributes
	}
	out.AttrValid, out.AttrValidNsec = forever, 0
	putAttr(&out.Attr, &e.Attr)
}

func (a *adapter) entry(out *fuse.EntryOut, e layers.Entry, err error) fuse.Status {
	if err != nil {
		return a.status(err)
	}
	putEntry(out, &e)
	a.grown()
	return fuse.OK
}

// grown is called after nodes have been made.
func (a *adapter) grown() {
	if a.m != nil {
		a.m.pruner.check(a.m, a.o)
	}
}
