package layers

import (
	"encoding/binary"
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// inodeInfo is what the overlay keeps of an inode of an upper beside what the host has of it, in xattrIno:
//
//	ino    u64  st_ino, which may come from a layer below
//	ctime  i64  seconds << 30 | nanoseconds of the last change that callers made, where the host's is later because of
//	            a copy-up; noCtime: the host's counts. Missing if only the number is kept.
//	subs   u32  directories only: subdirectories that only the layers below have; uncounted: not known
//
// Little endian, 8, 16 or 20 bytes: with the kernel's own attributes it just fits into an inode of 256 bytes of ext4.
type inodeInfo struct {
	ino   uint64
	ctime int64
	subs  uint32
}

const (
	noCtime   = math.MinInt64
	uncounted = math.MaxUint32
)

// Notes in part.ref of what lies in a directory layer.
const (
	noteDir   = 1 << 63            // these are notes, not a reference to an image
	noteLook  = 1 << 62            // stat must read the inode info
	noteCount = 1 << 61            // noteSubs counts
	noteSubs  = math.MaxUint32     // inodeInfo.subs
	notes     = noteDir | noteLook // of what may have inode info that has not been looked at
)

// packTime gives inodeInfo.ctime, noCtime for a time that it has no room for.
func packTime(t squashfs.Time) int64 {
	if t.Sec < -1<<33 || t.Sec >= 1<<33 {
		return noCtime
	}
	return t.Sec<<30 | int64(t.Nsec)
}

func unpackTime(t int64) squashfs.Time {
	return squashfs.Time{Sec: t >> 30, Nsec: uint32(t & (1<<30 - 1))}
}

func (r inodeInfo) encode(dir bool) []byte {
	b := encodeIno(r.ino)
	if r.ctime == noCtime && !dir {
		return b
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(r.ctime))
	if dir {
		b = binary.LittleEndian.AppendUint32(b, r.subs)
	}
	return b
}

func decodeInodeInfo(p []byte) (inodeInfo, bool) {
	r := inodeInfo{ctime: noCtime, subs: uncounted}
	if len(p) != 8 && len(p) != 16 && len(p) != 20 {
		return r, false
	}
	r.ino = binary.LittleEndian.Uint64(p)
	if len(p) >= 16 {
		r.ctime = int64(binary.LittleEndian.Uint64(p[8:]))
	}
	if len(p) == 20 {
		r.subs = binary.LittleEndian.Uint32(p[16:])
	}
	return r, true
}

// apply puts inode info into the host's attributes.
func (r inodeInfo) apply(a *Attr) {
	if r.ctime != noCtime {
		a.Ctime = unpackTime(r.ctime)
	}
	if isDir(a.Mode) {
		a.Nlink = countLinks(a.Nlink, r.subs)
	}
}

// countLinks adds subdirectories of the layers below to a directory's link count; 1 says that nobody counts.
func countLinks(host, subs uint32) uint32 {
	if host < 2 || subs == uncounted {
		return 1
	}
	return host + subs
}

// notes is what stat of a part with this inode info must know.
func (r inodeInfo) notes(dir bool) uint64 {
	switch {
	case r.ctime != noCtime:
		return noteDir | noteLook
	case !dir:
		return noteDir
	case r.subs == uncounted:
		return noteDir
	}
	return noteDir | noteCount | uint64(r.subs)
}

// inodeInfoOf is the inode info of a copy of what has these attributes.
func inodeInfoOf(a Attr) inodeInfo {
	r := inodeInfo{ino: a.Ino, ctime: packTime(a.Ctime), subs: uncounted}
	if isDir(a.Mode) && a.Nlink >= 2 {
		r.subs = a.Nlink - 2
	}
	return r
}

// readInodeInfo reads the info of an inode; there need not be one.
func readInodeInfo(p location) (r inodeInfo, ok bool, err error) {
	v, err := p.getxattr(xattrIno)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return inodeInfo{}, false, nil
	}
	if err != nil {
		return inodeInfo{}, false, err
	}
	r, ok = decodeInodeInfo(v)
	return r, ok, nil
}

// look completes the host's attributes of a part by its inode info.
func (o *part) look(p location, a *Attr) error {
	n := o.ref.Load()
	switch {
	case n&noteLook != 0:
		r, ok, err := readInodeInfo(p)
		if ok {
			r.apply(a)
		}
		return err
	case n&noteCount != 0:
		a.Nlink = countLinks(a.Nlink, uint32(n&noteSubs))
	}
	return nil
}

// touched notes that callers have changed n, whose inode is at p: the host's ctime counts from now on. subs is what
// the change takes from or adds to the subdirectories that only layers below have. tree is held.
func (o *Overlay) touched(n *node, p location, subs int) error {
	return n.top.touched(p, isDir(n.typ), subs)
}

// touched is Overlay.touched for a part in the upper.
func (o *part) touched(p location, dir bool, subs int) error {
	if o.ref.Load()&noteLook == 0 && subs == 0 {
		return nil
	}
	r, ok, err := readInodeInfo(p)
	if err != nil {
		return err
	}
	if !ok {
		o.ref.Store(noteDir)
		return nil
	}
	r.ctime = noCtime
	return o.setInodeInfo(p, r, dir, subs)
}

// changed is touched for a node of which the caller has no location.
func (o *Overlay) changed(n *node) error {
	if n.top.ref.Load()&noteLook == 0 {
		return nil
	}
	p, h, err := n.location()
	if err != nil {
		return err
	}
	defer h.release()
	return o.touched(n, p, 0)
}

// setInodeInfo writes inode info and notes what it says.
func (o *part) setInodeInfo(p location, r inodeInfo, dir bool, subs int) error {
	if r.subs != uncounted {
		r.subs = uint32(max(int(r.subs)+subs, 0))
	}
	if err := p.setxattr(xattrIno, r.encode(dir), 0); err != nil {
		return err
	}
	o.ref.Store(r.notes(dir))
	return nil
}

// keepCtime has callers see the ctime of n's inode as it is, whatever copy-up does to it from now on.
func (o *part) keepCtime(p location, n *node, now Attr) error {
	if o.ref.Load()&noteLook != 0 {
		return nil
	}
	return o.setInodeInfo(p, inodeInfo{ino: n.ino, ctime: packTime(now.Ctime)}, false, 0)
}

// keepingTimes runs fn, a change of the upper's directory n that callers do not see: its times stay what they were.
// subs is as in touched, for a subdirectory that gets the name given. n is locked, or tree held for writing.
func (o *Overlay) keepingTimes(n *node, name string, subs int, fn func(dirfd int) error) error {
	h, err := o.upper.store.dir(n.top)
	if err != nil {
		return err
	}
	defer h.release()
	self := nameIn(h.fd, ".")
	host, err := self.stat()
	if err != nil {
		return err
	}
	before, ok, err := readInodeInfo(self)
	if err != nil {
		return err
	}
	if !ok {
		before = inodeInfo{ino: n.ino, ctime: noCtime}
	}
	r := before
	if r.ctime == noCtime {
		r.ctime = packTime(host.Ctime)
	}
	defer o.keptTimes(n, name, subs, r, host)()
	if err := n.top.setInodeInfo(self, r, true, subs); err != nil {
		return err
	}
	err = fn(h.fd)
	o.countGrown(n, self, int64(host.Blocks))
	if err != nil {
		err = errors.Join(err, n.top.setInodeInfo(self, r, true, 0))
	}
	return errors.Join(err, self.utimes(timespec(host.Atime), timespec(host.Mtime)))
}
