package layers

import (
	"errors"
	"io"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/livestate"
	"snapfs/internal/readset"
	"snapfs/squashfs"
)

// regular gives a regular file by its id. tree is held.
func (o *Overlay) regular(id NodeID) (*node, error) {
	n, err := o.nodes.get(id)
	switch {
	case err != nil:
		return nil, err
	case isDir(n.typ):
		return nil, unix.EISDIR
	case !isReg(n.typ):
		return nil, unix.EINVAL
	}
	return n, nil
}

// openFile gives a descriptor of n's top part, which lies in a directory layer. tree is held.
func (o *Overlay) openFile(n *node, kind fdKind) (*descriptor, error) {
	if n.pin == 0 {
		return n.top.dirStore().file(n.top, kind)
	}
	key := fdKey{n.top, kind}
	if d := descriptors.get(key); d != nil {
		return d, nil
	}
	flags := unix.O_RDONLY
	if kind == fdWrite {
		flags = unix.O_RDWR
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(n.pin)-1), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return descriptors.put(key, fd), nil
}

// openData opens a regular file's data for reading. tree is held.
func (o *Overlay) openData(n *node) (content, error) {
	return o.openParts(n.parts(), n)
}

// readable opens a regular file's data by its id.
func (o *Overlay) readable(id NodeID) (*node, content, int64, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.regular(id)
	if err != nil {
		return nil, nil, 0, err
	}
	if o.nodes.isStale(n) {
		return nil, nil, 0, unix.ESTALE
	}
	if o.reads != nil {
		o.noteRead(n, readset.Content)
	}
	size := int64(-1)
	if len(n.below) > 0 {
		var err error
		if size, err = o.ownSize(n); err != nil {
			return nil, nil, 0, err
		}
	}
	c, err := o.openData(n)
	if err != nil {
		return nil, nil, 0, o.report(err, n.top, "")
	}
	return n, c, size, nil
}

// Read reads file contents.
func (o *Overlay) Read(id NodeID, p []byte, off int64) (int, error) {
	n, c, size, err := o.readable(id)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }() // read only
	if size >= 0 {
		if off >= size {
			return 0, nil
		}
		p = p[:min(int64(len(p)), size-off)]
	}
	k, err := c.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return k, o.reportNode(err, n)
	}
	return k, nil
}

// ownSize is the size of a metacopy, which is that of its topmost part. tree is held.
func (o *Overlay) ownSize(n *node) (int64, error) {
	var a Attr
	var err error
	if n.pin > 0 {
		a, err = location{dirfd: int(n.pin) - 1}.stat()
	} else {
		a, err = n.top.backend().stat(n.top)
	}
	return int64(a.Size), err
}

// writable runs fn, with which a program changes contents, inside the gate with a file that is in the upper: with all
// its data if whole is set, else at least with its metadata.
func (o *Overlay) writable(id NodeID, whole bool, fn func(t target) error) error {
	return o.withCopyUp(func() error {
		t, err := o.openWritable(id, whole)
		if err != nil {
			return err
		}
		defer t.release()
		defer o.loseCapability(t.n, t.location())()
		o.countBefore(t.n, t.location())
		err = fn(t)
		o.countAfter(t.n, t.location())
		if err != nil {
			return err
		}
		return t.top.touched(t.location(), false, 0)
	})
}

func (o *Overlay) openWritable(id NodeID, whole bool) (target, error) {
	t, err := o.openIn(id, whole, false)
	if err == errFirst { //nolint:errorlint // it comes as it is
		o.upper.thaw()
		return o.openIn(id, whole, true)
	}
	return t, err
}

// errFirst says that a file must be marked as partial, for which the host may make one wait.
var errFirst = errors.New("first write of a metacopy")

func (o *Overlay) openIn(id NodeID, whole, first bool) (target, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.regular(id)
	if err != nil {
		return target{}, err
	}
	if o.upper == nil {
		return target{}, unix.EROFS
	}
	if !o.inUpper(n) || len(n.below) > 0 {
		some := false
		if !whole {
			if some, err = o.byBlocks(n); err != nil {
				return target{}, err
			}
		}
		if _, busy := o.ups.times(n); busy || !some || !o.inUpper(n) {
			return target{}, o.needUp(n, busy || !some)
		}
		if !first && !o.blocks.has(n.top) {
			return target{}, errFirst
		}
	}
	return o.target(n)
}

// Write writes file contents, copying up first. With killFor, the caller, it clears file capabilities first. Setuid and
// setgid, which the caller of Write must know of before the contents change, it leaves to a SetAttr with KillPriv:
// ErrPrivileged.
func (o *Overlay) Write(id NodeID, p []byte, off int64, killFor *Caller) (int, error) {
	return o.write(id, p, off, killFor, false)
}

// WriteBack writes what the kernel has had in its cache. File capabilities, which the host clears with every write,
// stay: those of the time when a program wrote the cache are gone, and others may have been set since.
func (o *Overlay) WriteBack(id NodeID, p []byte, off int64) (int, error) {
	return o.write(id, p, off, nil, true)
}

func (o *Overlay) write(id NodeID, p []byte, off int64, killFor *Caller, back bool) (int, error) {
	// As writable does, but without a closure, which would be garbage of every write.
	for tries := 0; ; {
		o.gate.RLock()
		k, err := o.writeInside(id, p, off, killFor, back)
		o.gate.RUnlock()
		if err == nil {
			return k, nil
		}
		if err = o.settleErr(err, &tries); err != nil {
			return k, err
		}
	}
}

// writeInside is write inside the gate, as far as no copy-up is needed.
func (o *Overlay) writeInside(id NodeID, p []byte, off int64, killFor *Caller, back bool) (int, error) {
	t, err := o.openWritable(id, false)
	if err != nil {
		return 0, err
	}
	defer t.release()
	if killFor != nil {
		if err := o.unprivileged(t, *killFor); err != nil {
			return 0, err
		}
	}
	switch {
	case back:
		c := o.caps.begin(t.n, t.location())
		defer o.end(t.n, c, t.location())
	case UserAttributes() && !t.n.bare.Load():
		defer o.loseCapability(t.n, t.location())()
	}
	var g grant
	if o.bounded() {
		var room int
		if g, room, err = o.grantWrite(t, off, len(p), back); err != nil {
			return 0, err
		}
		p = p[:room]
	}
	k, err := t.write(p, off)
	o.writeOut(t.d, off, int64(k))
	g.counted(t)
	if err != nil {
		return k, err
	}
	return k, t.top.touched(t.location(), false, 0)
}

// unprivileged clears file capabilities, and refuses a file that has more to be cleared.
func (o *Overlay) unprivileged(t target, c Caller) error {
	a, err := t.location().stat()
	if err != nil {
		return err
	}
	if c.leftOver(a.Mode, a.GID) != a.Mode {
		return ErrPrivileged
	}
	return o.dropCapability(t.n, t.location())
}

// Fallocate is fallocate(2). A long range is changed in pieces; the size, if it changes, does so with the last one.
func (o *Overlay) Fallocate(id NodeID, mode uint32, off, length int64) error {
	return o.Noting(nil).Fallocate(id, mode, off, length)
}

// Fallocate is Overlay.Fallocate for a request.
func (v Noted) Fallocate(id NodeID, mode uint32, off, length int64) error {
	if mode&(unix.FALLOC_FL_COLLAPSE_RANGE|unix.FALLOC_FL_INSERT_RANGE) != 0 {
		return v.status(func() error { return v.shift(id, mode, off, length) })
	}
	o := v.Overlay
	if whole := movesData(mode); whole || off < 0 || length <= pieceFirst || off+length < 0 {
		return o.writable(id, whole, func(t target) error { return o.fallocate(t, mode, off, length, length) })
	}
	var p pace
	for ahead := length; length > 0; ahead = 0 {
		n, m := p.next(off, length), mode
		if n < length {
			m |= unix.FALLOC_FL_KEEP_SIZE
		}
		start := time.Now()
		if err := o.writable(id, false, func(t target) error { return o.fallocate(t, m, off, n, max(ahead, n)) }); err != nil {
			return err
		}
		p.took(n, time.Since(start))
		off, length = off+n, length-n
	}
	return nil
}

// shift moves what lies behind a range. The host does that as a whole or not at all, which the size shows.
func (v Noted) shift(id NodeID, mode uint32, off, length int64) error {
	f, again := v.in.Unfinished()
	again = again && f.Kind == intentShift
	return v.writable(id, true, func(t target) error {
		if v.in == nil {
			return t.fallocate(mode, off, length)
		}
		a, err := t.location().stat()
		if err != nil {
			return err
		}
		if again && a.Size == f.Values[1] {
			return nil
		}
		end := a.Size + uint64(length)
		if mode&unix.FALLOC_FL_COLLAPSE_RANGE != 0 {
			end = a.Size - uint64(length)
		}
		v.in.Doing(&livestate.Facts{Kind: intentShift, Values: [8]uint64{a.Size, end}})
		err = t.fallocate(mode, off, length)
		steps.At("range moved")
		return err
	})
}

// Seek is lseek(2) for SEEK_DATA and SEEK_HOLE.
func (o *Overlay) Seek(id NodeID, off int64, whence int) (int64, error) {
	if whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
		return 0, unix.EINVAL
	}
	n, c, size, err := o.readable(id)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }() // read only
	if f, ok := c.(hostFile); ok {
		// SEEK_DATA and SEEK_HOLE do not depend on the descriptor's position, so sharing it is harmless.
		return unix.Seek(f.d.fd, off, whence)
	}
	if size < 0 {
		a, err := o.GetAttr(id)
		if err != nil {
			return 0, err
		}
		size = int64(a.Size)
	}
	extents, err := c.Extents()
	if err != nil {
		return 0, o.reportNode(err, n)
	}
	return seekExtents(extents, size, off, whence)
}

// seekExtents is lseek(2) over a list of data extents.
func seekExtents(extents []squashfs.Extent, size, off int64, whence int) (int64, error) {
	if off < 0 || off >= size {
		return 0, unix.ENXIO
	}
	for _, e := range extents {
		end := min(e.Off+e.Len, size)
		if off >= end {
			continue
		}
		switch {
		case whence == unix.SEEK_DATA:
			return max(off, e.Off), nil
		case off < e.Off:
			return off, nil
		}
		off = end
	}
	if whence == unix.SEEK_DATA {
		return 0, unix.ENXIO
	}
	return min(off, size), nil
}

// CopyRange is copy_file_range(2). It copies in pieces; where one fails, those before it count.
func (o *Overlay) CopyRange(src NodeID, srcOff int64, dst NodeID, dstOff, length int64) (int64, error) {
	from, c, size, err := o.readable(src)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }() // read only
	if size >= 0 {
		length = min(length, size-srcOff)
	}
	var p pace
	r := rangeCopy{c: c, room: min(length, pieceFirst)}
	for done := int64(0); ; {
		n := p.next(dstOff+done, length-done)
		if n <= 0 {
			return done, nil
		}
		start := time.Now()
		k, err := o.copyPiece(&r, srcOff+done, dst, dstOff+done, n)
		p.took(k, time.Since(start))
		done += k
		if k == 0 || err != nil {
			if done > 0 || err == nil {
				return done, nil // who asks for the rest meets an error again
			}
			return 0, o.reportNode(err, from)
		}
	}
}

// rangeCopy is one call of CopyRange.
type rangeCopy struct {
	c    content
	room int64  // for buf
	buf  []byte // made when the host does not copy by itself
}

// read reads the next piece, or some of it.
func (r *rangeCopy) read(off, n int64) ([]byte, error) {
	if r.buf == nil {
		r.buf = make([]byte, r.room)
	}
	k, err := r.c.ReadAt(r.buf[:min(n, r.room)], off)
	if k > 0 || errors.Is(err, io.EOF) {
		err = nil
	}
	return r.buf[:k], err
}

// copyPiece copies a piece, by the host's own means where it can.
func (o *Overlay) copyPiece(r *rangeCopy, from int64, dst NodeID, to, n int64) (done int64, err error) {
	f, host := r.c.(hostFile)
	var data []byte
	if !host { // what may take long to read is not read inside the gate
		if data, err = r.read(from, n); err != nil {
			return 0, err
		}
	}
	err = o.writable(dst, false, func(t target) error {
		g, room, err := o.grantWrite(t, to, int(n), false)
		if err != nil {
			return err
		}
		defer g.release()
		n = int64(room)
		data = data[:min(len(data), room)]
		if host && t.m == nil {
			in, out := from, to
			k, err := copyFileRange(f.d.fd, &in, t.d.fd, &out, int(n))
			if err == nil || !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
				done = int64(k)
				return err
			}
		}
		if host {
			if data, err = r.read(from, n); err != nil {
				return err
			}
		}
		w, err := t.write(data, to)
		done = int64(w)
		return err
	})
	return done, err
}

// copyFileRange is copy_file_range(2), again when interrupted.
func copyFileRange(in int, inOff *int64, out int, outOff *int64, n int) (int, error) {
	for {
		k, err := unix.CopyFileRange(in, inOff, out, outOff, n, 0)
		if !errors.Is(err, unix.EINTR) {
			return k, err
		}
	}
}

// Fsync makes a file or directory durable. It also reaches what was written before a seal. It runs outside the gate.
func (o *Overlay) Fsync(id NodeID, dataOnly bool) error {
	holds, sides, err := o.syncTargets(id)
	if err != nil {
		return err
	}
	for _, d := range holds {
		if err == nil {
			if dataOnly && len(sides) == 0 {
				err = unix.Fdatasync(d.fd)
			} else {
				err = unix.Fsync(d.fd)
			}
		}
		d.release()
	}
	for _, m := range sides {
		if err == nil {
			err = m.sync()
		}
	}
	return err
}

// syncTargets opens the parts of a node that lie in directories, and gives the block maps of a partial file, which are
// not part of its data.
func (o *Overlay) syncTargets(id NodeID) ([]*descriptor, []*blockMap, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.nodes.get(id)
	if err != nil {
		return nil, nil, err
	}
	if n.pin > 0 && isDir(n.typ) || n.dead && n.pin == 0 {
		return nil, nil, nil // nothing that a crash would leave
	}
	var out []*descriptor
	var sides []*blockMap
	if isReg(n.typ) && len(n.below) > 0 {
		if sides, err = o.mapsOf(n); err != nil {
			return nil, nil, err
		}
	}
	for i, part := range n.parts() {
		s := part.dirStore()
		if src := part.layer.lower.source; src != nil && isReg(n.typ) {
			out = append(out, src.durable(part)...)
		}
		if s == nil {
			continue
		}
		var d *descriptor
		switch {
		case isDir(n.typ):
			d, err = s.openDir(part)
		case !isReg(n.typ):
			continue
		case i == 0:
			d, err = o.openFile(n, fdRead)
		default:
			d, err = s.file(part, fdRead)
		}
		if err != nil {
			for _, d := range out {
				d.release()
			}
			return nil, nil, err
		}
		out = append(out, d)
	}
	return out, sides, nil
}

// openDir opens a directory for fsync, outside the cache.
func (s *dirStore) openDir(o *part) (*descriptor, error) {
	h, err := s.dir(o)
	if err != nil {
		return nil, err
	}
	defer h.release()
	fd, err := openat(h.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &descriptor{fd: fd, cache: descriptors, refs: 1}, nil
}

// pwrite is pwrite(2), again when interrupted.
func pwrite(fd int, p []byte, off int64) (int, error) {
	for {
		k, err := unix.Pwrite(fd, p, off)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return max(k, 0), err
	}
}

func pwriteFull(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		k, err := pwrite(fd, p, off)
		if err != nil {
			return err
		}
		p, off = p[k:], off+int64(k)
	}
	return nil
}

// preadFull reads until p is full or the file ends, as io.ReaderAt demands.
func preadFull(fd int, p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		k, err := unix.Pread(fd, p[done:], off+int64(done))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, err
		}
		if k == 0 {
			return done, io.EOF
		}
		done += k
	}
	return done, nil
}
