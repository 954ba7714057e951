package layers

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// A file is copied when its contents are first read, by the host's own means where it can. A copy is of one moment if
// the file's size, inode and times are the same before and after, and they were not young: a change after the first look
// has another change time then. What changes all the time is copied under a
// lease, which keeps others from opening it for writing. If somebody has it open so all the time, the copy is what was
// read of it: of a file that is only appended to, that is what it was when the copy began.

const (
	fixTries  = 8         // copies that are made of a file that changes meanwhile
	fixBytes  = 256 << 20 // bytes that these have, with which no more are made
	fixPause  = 5 * time.Millisecond
	leaseWait = 50 // times fixPause that a lease is tried for
	// steady is for how long a file must not have changed: a call that writes sets the change time when it begins.
	steady = 20 * time.Millisecond
)

// errUnsteady says that no copy of one moment can be had.
var errUnsteady = fmt.Errorf("the file changes all the time while it is copied: %w", unix.EIO)

// care says how a file is copied that changes meanwhile.
type care struct {
	tries int
	exact bool // errUnsteady rather than a copy that may not be of one moment
}

// fix fixes a regular file of the layer. The caller holds no lock. unix.ESTALE: the part is of an earlier version, which
// nobody has read.
func (s *sourceStore) fix(o *part) error { return s.fixWith(o, care{tries: fixTries}) }

func (s *sourceStore) fixWith(o *part, how care) error {
	for {
		s.mu.Lock()
		if x := s.fixed[o.ino]; x != nil {
			s.mu.Unlock()
			return x.current(o)
		}
		if done := s.busy[o.ino]; done != nil {
			s.mu.Unlock()
			<-done
			continue
		}
		done := make(chan struct{})
		s.busy[o.ino] = done
		s.mu.Unlock()
		err := s.fixOne(o, how)
		s.mu.Lock()
		delete(s.busy, o.ino)
		s.mu.Unlock()
		close(done)
		if err != nil {
			return err
		}
	}
}

// current reports whether a part is of the version that was fixed, or of one of the same size.
func (x *sourceInode) current(o *part) error {
	ref := o.ref.Load()
	back := x.version - uint32(ref&noteVersion) // versions since
	if ref&noteSource == 0 || back == 0 || int(back) <= len(x.old) && x.old[len(x.old)-int(back)] == int64(x.attr.Size) {
		return nil
	}
	return unix.ESTALE
}

// fixOne is fix for who is alone.
func (s *sourceStore) fixOne(o *part, how care) error {
	d, e, err := s.nameOf(o)
	if err != nil {
		return err
	}
	if _, err := s.observe(d, e); err != nil {
		return err
	}
	at := s.place(o.ino, d, e)
	if s.onOpen != nil {
		s.onOpen()
	}
	fd, err := s.openHost(at)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if same, err := s.isFile(fd, o.ino); err != nil || !same {
		return err // fix looks again
	}
	c, err := s.copyOf(fd, o.ino, how)
	if err != nil {
		return fmt.Errorf("copy of %s: %w", d.path(e.name), err)
	}
	name := copyName(o.ino)
	if err := unix.Renameat(s.copies, c.tmp, s.copies, name); err != nil {
		return err
	}
	if ok, err := s.settleCopy(d, e, o.ino, c); !ok {
		_ = unix.Unlinkat(s.copies, name, 0) // of no use
		if err != nil {
			return err
		}
		return fmt.Errorf("%s has changed since it was stored, or is gone: %w", d.path(e.name), unix.ESTALE)
	}
	return nil
}

// isFile reports whether an open file is the one that was seen with a number, and not one that has come in its place.
func (s *sourceStore) isFile(fd int, number uint64) (bool, error) {
	var sx unix.Statx_t
	if err := statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &sx); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	host, ok := s.bound[number]
	if !ok {
		host = number
	}
	return sx.Ino == host && mountOf(&sx) == s.host.mount, nil
}

// settleCopy has the layer show a copy. It is false if the image has something else in its place, or nothing.
func (s *sourceStore) settleCopy(d *sourceDir, e *sourceName, number uint64, c *sourceCopy) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stamp := stampOf(&c.sx)
	if s.walk.ended && s.storedLocked(number).stamp != stamp {
		return false, nil
	}
	if now, _, gone := e.get(); gone || now != number {
		return false, nil // it was found to be gone meanwhile
	}
	f, older := s.files[number], s.walk.older[number]
	if f.stamp != stamp && f.stamp != 0 {
		s.walk.againLocked(number, f.pass)
		s.changedLocked(d, e.name)
		if f.size != int64(c.attr.Size) {
			s.walk.olderLocked(number, f)
			f.version++
		}
	}
	c.old, c.version, c.copied = s.walk.older[number], f.version, true
	c.attr.Ino = number
	if err := s.log.inode(number, &c.sourceInode); err != nil {
		if older != nil {
			s.walk.older[number] = older
		} else {
			delete(s.walk.older, number)
		}
		return false, err
	}
	s.fixed[number] = &c.sourceInode
	delete(s.files, number)
	delete(s.walk.older, number)
	s.unsynced.copiedLocked(number)
	if c.rough && s.opts.Rough != nil {
		s.opts.Rough(d.path(e.name))
	}
	return true, nil
}

// copyName is the name of the copy of a file.
func copyName(number uint64) string { return strconv.FormatUint(number, 16) }

// openHost opens a file of the host.
func (s *sourceStore) openHost(at sourcePlace) (fd int, err error) {
	err = s.do(func() error {
		h, err := s.host.store.dir(at.dir.at)
		if err != nil {
			return err
		}
		defer h.release()
		const flags = unix.O_RDONLY | unix.O_NONBLOCK
		fd, err = s.host.store.openat(h.fd, at.name, flags|unix.O_NOATIME)
		if errors.Is(err, unix.EPERM) {
			fd, err = s.host.store.openat(h.fd, at.name, flags)
		}
		return err
	})
	if err == nil {
		_ = unix.SetNonblock(fd, false) // a regular file, if it is one
	}
	return fd, err
}

// sourceCopy is a copy that has no name yet.
type sourceCopy struct {
	sourceInode
	sx    unix.Statx_t
	tmp   string
	rough bool // the file changed meanwhile
}

// copyOf copies an open file as it is at one moment, or as well as it can.
func (s *sourceStore) copyOf(fd int, number uint64, how care) (*sourceCopy, error) {
	c := &sourceCopy{tmp: copyName(number) + ".new"}
	copied := uint64(0)
	for try := range how.tries {
		if ok, err := s.tryCopy(fd, c); ok || err != nil {
			return c, err
		}
		if copied += c.attr.Size; copied >= fixBytes {
			break
		}
		time.Sleep(time.Duration(try) * fixPause)
	}
	if how.exact {
		return nil, errUnsteady
	}
	if release := lease(fd); release != nil {
		ok, err := s.tryCopy(fd, c)
		release()
		if ok || err != nil {
			return c, err
		}
	}
	c.rough = true
	_, err := s.tryCopy(fd, c)
	return c, err
}

// tryCopy copies once, and leaves nothing if that fails. ok is false if the file changed meanwhile.
func (s *sourceStore) tryCopy(fd int, c *sourceCopy) (ok bool, err error) {
	if ok, err = s.copyOnce(fd, c); !ok {
		_ = unix.Unlinkat(s.copies, c.tmp, 0) // what there is of it
	}
	return ok, err
}

// lease keeps others from opening a file for writing until release is called; nil if somebody has it open so.
func lease(fd int) (release func()) {
	for range leaseWait {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err == nil {
			return func() { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK) }
		}
		time.Sleep(fixPause)
	}
	return nil
}

// isYoung reports whether a file changed so lately, by the clock of change times, that another change may not show.
func isYoung(sx *unix.Statx_t, now int64) bool {
	return sx.Ctime.Sec*int64(time.Second)+int64(sx.Ctime.Nsec) >= now-int64(steady)
}

// statFile looks at an open file once it is not young any more.
func statFile(fd int) (sx unix.Statx_t, err error) {
	for range int(clockTick/time.Millisecond) + 1 {
		now := coarseNow()
		mask := unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID
		if err := statx(fd, "", unix.AT_EMPTY_PATH, mask, &sx); err != nil {
			return sx, err
		}
		if !isYoung(&sx, now) {
			return sx, nil
		}
		time.Sleep(time.Millisecond)
	}
	return sx, nil // its time lies in the future, or it changes all the time, which is found out
}

func (s *sourceStore) copyOnce(fd int, c *sourceCopy) (ok bool, err error) {
	// Stores to a mapped page that is dirty already change no time: with the page written, the next one does.
	const written = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	_ = unix.SyncFileRange(fd, 0, 0, written) // no error is of the copy
	if c.sx, err = statFile(fd); err != nil {
		return false, err
	}
	c.attr = sourceAttr(&c.sx)
	if !isReg(c.attr.Mode) {
		return false, unix.ESTALE
	}
	to, err := openat(s.copies, c.tmp, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	defer unix.Close(to)
	if s.onCopy != nil {
		s.onCopy()
	}
	err = copyData(to, hostFile{&descriptor{fd: fd}}, int64(c.attr.Size), nil)
	if errors.Is(err, unix.EIO) && !stillAs(fd, &c.sx) { // it became shorter
		if !c.rough {
			return false, nil
		}
		err = nil // it ends in zeros
	}
	if err != nil {
		return false, err
	}
	if err := s.do(func() error { return c.read(location{dirfd: fd, foreign: true}) }); err != nil {
		return false, err
	}
	if c.rough { // a clone has all of it
		if err := unix.Ftruncate(to, int64(c.attr.Size)); err != nil {
			return false, err
		}
	} else if !stillAs(fd, &c.sx) {
		return false, nil
	}
	if c.sum, err = sumOf(to, c.attr.Size); err != nil {
		return false, err
	}
	c.attr.Blocks, err = sourceBlocks(to, c.attr.Size)
	return true, err
}

// stillAs reports whether an open file is as it was when it was looked at.
func stillAs(fd int, was *unix.Statx_t) bool {
	var now unix.Statx_t
	err := statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &now)
	return err == nil && stampOf(&now) == stampOf(was)
}

// sourceBlocks is how many blocks a file has in an image.
func sourceBlocks(fd int, size uint64) (uint64, error) {
	if size <= 4096 {
		return (size + 511) / 512, nil
	}
	extents, err := hostExtents(fd)
	blocks := uint64(0)
	for _, e := range extents {
		blocks += uint64(min(e.Len, int64(size)-e.Off)+511) / 512
	}
	return blocks, err
}

// open implements backend. The contents are fixed when they are first read, without the lock under which this is called.
func (s *sourceStore) open(o *part) (content, error) {
	seen, ok := s.seenAs(o.ino)
	if !ok {
		return &sourceContent{s: s, o: o, low: s.lower.acquire()}, nil
	}
	if !isReg(seen.attr.Mode) {
		return nil, unix.EINVAL
	}
	if seen.attr.Size == 0 {
		return noData{}, seen.fixed.current(o)
	}
	return s.openCopy(o, seen.fixed)
}

func (s *sourceStore) openCopy(o *part, x *sourceInode) (content, error) {
	if err := x.current(o); err != nil {
		return nil, err
	}
	key := fdKey{o, fdRead}
	if d := descriptors.get(key); d != nil {
		return hostFile{d}, nil
	}
	fd, err := openat(s.copies, copyName(o.ino), unix.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("copy of %s: %w", o.path(), err)
	}
	return hostFile{descriptors.put(key, fd)}, nil
}

// durable gives what must be synced so that a power failure does not lose the copy of a file, for its metadata may be
// in the upper. Nothing of a file that nobody has read.
func (s *sourceStore) durable(o *part) []*descriptor {
	if _, ok := s.seenAs(o.ino); !ok {
		return nil
	}
	var out []*descriptor
	for _, name := range []string{copyName(o.ino), journalName, "."} {
		fd, err := openat(s.copies, name, unix.O_RDONLY, 0)
		if err != nil {
			continue // no copy
		}
		out = append(out, &descriptor{fd: fd, cache: descriptors, refs: 1})
	}
	return out
}

// noData is the contents of an empty file.
type noData struct{}

func (noData) ReadAt([]byte, int64) (int, error)   { return 0, io.EOF }
func (noData) Extents() ([]squashfs.Extent, error) { return nil, nil }
func (noData) Close() error                        { return nil }

// sourceContent is the contents of a file that are fixed when they are first used.
type sourceContent struct {
	s    *sourceStore
	o    *part
	low  *Lower  // that of s
	file content // nil: not used yet
}

// ready fixes the file. The caller holds no lock.
func (c *sourceContent) ready() error {
	if c.file != nil {
		return nil
	}
	err := c.s.fix(c.o)
	if err != nil {
		return err
	}
	c.file, err = c.s.open(c.o)
	return err
}

func (c *sourceContent) ReadAt(p []byte, off int64) (int, error) {
	if err := c.ready(); err != nil {
		return 0, err
	}
	return c.file.ReadAt(p, off)
}

// Extents implements content.
func (c *sourceContent) Extents() ([]squashfs.Extent, error) {
	if err := c.ready(); err != nil {
		return nil, err
	}
	return c.file.Extents()
}

// Close implements content.
func (c *sourceContent) Close() error {
	if c.file != nil {
		_ = c.file.Close() // read only
	}
	return c.low.Close()
}

// fixSource fixes a file that is going to be copied up, whose size must be known. The caller holds no lock.
func (o *Overlay) fixSource(n *node) error {
	o.tree.RLock()
	o.nodes.refresh(n)
	top := n.top
	s := top.layer.lower.source
	if s == nil || !isReg(n.typ) {
		o.tree.RUnlock()
		return nil
	}
	low := s.lower.acquire()
	o.tree.RUnlock()
	err := s.fix(top)
	_ = low.Close() // read only
	if err != nil {
		return o.reportPart(err, top)
	}
	return nil
}
