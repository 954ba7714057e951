package fs

import (
	"errors"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// Lookup answers an unknown name with node 0, which the kernel remembers as "no such name" unless it may come back.
func (a *adapter) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	e, err := a.o.Lookup(layers.NodeID(h.NodeId), name)
	if err != nil {
		st := a.status(err)
		if st == fuse.ENOENT && !errors.Is(err, layers.ErrAway) {
			out.EntryValid = forever
			return fuse.OK
		}
		return st
	}
	putEntry(out, &e)
	a.grown()
	return fuse.OK
}

// Forget gives references back; batches arrive here one by one.
func (a *adapter) Forget(node, n uint64) { a.o.Forget(layers.NodeID(node), n) }

// GetAttr stats a node.
func (a *adapter) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return a.getAttr(layers.NodeID(in.NodeId), out)
}

func (a *adapter) getAttr(node layers.NodeID, out *fuse.AttrOut) fuse.Status {
	at, err := a.o.GetAttr(node)
	if err != nil {
		return a.status(err)
	}
	out.AttrValid, out.AttrValidNsec, out.Dummy = forever, 0, 0
	putAttr(&out.Attr, &at)
	return fuse.OK
}

// Statx adds what GETATTR cannot say: the time of birth.
func (a *adapter) Statx(_ <-chan struct{}, in *fuse.StatxIn, out *fuse.StatxOut) fuse.Status {
	at, err := a.o.GetAttr(layers.NodeID(in.NodeId))
	if err != nil {
		return a.status(err)
	}
	out.AttrValid = forever
	out.Statx = fuse.Statx{
		Mask:      unix.STATX_BASIC_STATS,
		Blksize:   at.Blksize,
		Nlink:     at.Nlink,
		Uid:       at.UID,
		Gid:       at.GID,
		Mode:      uint16(at.Mode),
		Ino:       at.Ino,
		Size:      at.Size,
		Blocks:    at.Blocks,
		Atime:     sxTime(at.Atime),
		Ctime:     sxTime(at.Ctime),
		Mtime:     sxTime(at.Mtime),
		RdevMajor: unix.Major(at.Rdev),
		RdevMinor: unix.Minor(at.Rdev),
	}
	if at.Btime != (layers.Time{}) {
		out.Mask |= unix.STATX_BTIME
		out.Btime = sxTime(at.Btime)
	}
	return fuse.OK
}

func sxTime(t layers.Time) fuse.SxTime { return fuse.SxTime{Sec: uint64(t.Sec), Nsec: t.Nsec} }

// SetAttr changes attributes. With HANDLE_KILLPRIV_V2 a change of owner always clears setuid, setgid and
// capabilities, and a change of size when the kernel says so.
func (a *adapter) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	s := layers.SetAttr{
		Mode:  in.Mode & 0o7777,
		UID:   in.Uid,
		GID:   in.Gid,
		Size:  in.Size,
		Atime: layers.Time{Sec: int64(in.Atime), Nsec: in.Atimensec},
		Mtime: layers.Time{Sec: int64(in.Mtime), Nsec: in.Mtimensec},
	}
	for _, b := range [...]struct{ fuse, layers uint32 }{
		{fuse.FATTR_MODE, layers.SetMode},
		{fuse.FATTR_UID, layers.SetUID | layers.KillPriv},
		{fuse.FATTR_GID, layers.SetGID | layers.KillPriv},
		{fuse.FATTR_SIZE, layers.SetSize},
		{fuse.FATTR_ATIME, layers.SetAtime},
		{fuse.FATTR_MTIME, layers.SetMtime},
		{fuse.FATTR_ATIME_NOW, layers.SetAtimeNow},
		{fuse.FATTR_MTIME_NOW, layers.SetMtimeNow},
		{fuse.FATTR_KILL_SUIDGID, layers.KillPriv},
	} {
		if in.Valid&b.fuse != 0 {
			s.Valid |= b.layers
		}
	}
	node := layers.NodeID(in.NodeId)
	if s.Valid == 0 && a.strips(in) {
		s.Valid = layers.KillPriv
	}
	r := a.room()
	at, err := a.on(&in.InHeader).SetAttr(caller(&in.InHeader, 0), node, s)
	for r.comes(err) {
		at, err = a.on(&in.InHeader).SetAttr(caller(&in.InHeader, 0), node, s)
	}
	if err != nil {
		return a.status(err)
	}
	out.AttrValid, out.AttrValidNsec, out.Dummy = forever, 0, 0
	putAttr(&out.Attr, &at)
	return fuse.OK
}

// Readlink gives a symlink's target; the kernel caches it.
func (a *adapter) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	target, err := a.o.Readlink(layers.NodeID(h.NodeId))
	if err != nil {
		return nil, a.status(err)
	}
	return []byte(target), fuse.OK
}

// StatFs describes the host file system of the upper.
func (a *adapter) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	s, err := a.o.Statfs()
	if err != nil {
		return a.status(err)
	}
	*out = fuse.StatfsOut{
		Blocks: s.Blocks, Bfree: s.Bfree, Bavail: s.Bavail, Files: s.Files, Ffree: s.Ffree,
		Bsize: s.Bsize, NameLen: s.NameLen, Frsize: s.Frsize,
	}
	return fuse.OK
}
