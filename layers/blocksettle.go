package layers

import (
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// settle makes the map of a file true again after the machine may have lost what was not synced: of a block that was
// claimed the host may have kept only some pages, and where it has a hole the data below shows as before. Other than
// that there are no holes in a block of state blockOwn. A file that had lost something gets a new ctime. tree is held.
func (o *Overlay) settle(f *patched, part *part, n *node, s *dirStore) error {
	f.m.mu.RLock()
	settled := f.m.boot == bootID()
	f.m.mu.RUnlock()
	if settled {
		return nil
	}
	var d *descriptor
	var err error
	if n.pinned(part) {
		d, err = o.openFile(n, fdWrite)
	} else {
		d, err = s.file(part, fdWrite)
	}
	if err != nil {
		return err
	}
	defer d.release()
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	p := location{dirfd: d.fd}
	before, err := p.stat()
	if err != nil {
		return err
	}
	show := min(f.m.limit, int64(before.Size))
	lost, owner := false, n
	if n == nil || part != n.top {
		owner = new(node) // nobody asks what the part has
	}
	c := o.caps.begin(owner, p)
	defer func() {
		if lost {
			o.end(owner, c, p)
		} else {
			o.caps.leave(owner, c)
		}
	}()
	for b := int64(0); b<<f.m.shift < show; b++ {
		if f.m.state(b) != blockOwn {
			continue
		}
		some, err := f.restore(d.fd, b<<f.m.shift, min((b+1)<<f.m.shift, show))
		lost = lost || some
		if err != nil {
			return err
		}
	}
	f.m.boot = bootID()
	if !lost {
		return nil // the attribute is written with the next claim, so that reading a file does not change it
	}
	if err := unix.Fdatasync(d.fd); err != nil {
		return err
	}
	if err := f.m.put(p); err != nil {
		return err
	}
	return p.utimes(timespec(before.Atime), timespec(before.Mtime))
}

// restore fills the host's holes in a range from below, and reports whether there were any.
func (f *patched) restore(fd int, from, to int64) (lost bool, err error) {
	for from < to {
		hole, err := unix.Seek(fd, from, unix.SEEK_HOLE)
		if err != nil || hole >= to {
			return lost, err
		}
		lost = true
		data, err := unix.Seek(fd, hole, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data, err = to, nil
		}
		if err != nil {
			return lost, err
		}
		data = min(data, to)
		buf := make([]byte, data-hole)
		if k, err := f.below.ReadAt(buf, hole); k < len(buf) {
			return lost, err
		}
		if err := pwriteFull(fd, buf, hole); err != nil {
			return lost, err
		}
		from = data
	}
	return lost, nil
}

// fill gives a partial file all of its data, piece by piece, each a step inside the gate. It may be written meanwhile.
func (f *patched) fill(fd int, inside func(step func() error) error) error {
	data, err := f.below.Extents()
	if err != nil {
		return err
	}
	buf := make([]byte, 256<<10)
	for off, more := int64(0), true; more && err == nil; {
		err = inside(func() error {
			f.m.mu.Lock()
			defer f.m.mu.Unlock()
			size, err := fileSize(fd)
			if err != nil {
				return err
			}
			show := min(f.m.limit, size)
			end := min(off+max(pieceFirst, int64(1)<<f.m.shift), show)
			for more = end < show; off < end; {
				own, n := f.m.run(off, end-off)
				if !own {
					if err := f.fillRun(fd, off, off+n, data, buf); err != nil {
						return err
					}
				}
				off += n
			}
			return nil
		})
	}
	return err
}

// fillRun copies what is in a run of blocks from below and claims them. m.mu is held for writing.
func (f *patched) fillRun(fd int, from, to int64, data []squashfs.Extent, buf []byte) error {
	t := target{d: &descriptor{fd: fd}}
	if err := t.punch(from, to); err != nil {
		return err
	}
	extents, _ := clip(nil, data, from, to)
	for _, x := range extents {
		for x.Len > 0 {
			p := buf[:min(x.Len, int64(len(buf)))]
			if k, err := f.below.ReadAt(p, x.Off); k < len(p) {
				return err
			}
			if err := pwriteFull(fd, p, x.Off); err != nil {
				return err
			}
			x.Off += int64(len(p))
			x.Len -= int64(len(p))
		}
	}
	state := blockOwn
	if len(extents) != 1 || extents[0].Off != from || extents[0].Len != to-from {
		state = blockLoose // holes below are zeros
	}
	return f.m.claim(location{dirfd: fd}, from>>f.m.shift, (to-1)>>f.m.shift, func(int64) blockState { return state })
}
