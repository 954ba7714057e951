package layers

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// target is a regular file of the upper that is being written: whole, or partial.
type target struct {
	d     *descriptor
	n     *node
	top   *part
	m     *blockMap // nil: whole
	below content   // what shows through a partial one
}

func (t target) release() {
	if t.below != nil {
		_ = t.below.Close() // read only
	}
	t.d.release()
}

func (t target) location() location { return location{dirfd: t.d.fd} }

// byBlocks reports whether a file's contents may be changed without being copied up as a whole. tree is held.
func (o *Overlay) byBlocks(n *node) (bool, error) {
	if !isReg(n.typ) {
		return false, nil
	}
	if len(n.below) > 0 && o.inUpper(n) {
		m, err := o.blocksOf(n.top, n)
		if m != nil || err != nil {
			return m != nil, err
		}
	}
	if !o.upper.byBlocks || o.opts.BlockCopyUp < 0 {
		return false, nil
	}
	a, err := o.attr(n)
	least := int64(blockCopyUp)
	if o.opts.BlockCopyUp > 0 {
		least = o.opts.BlockCopyUp
	}
	return err == nil && int64(a.Size) >= least && a.Size <= maxPartial, err
}

// blockCopyUp is the size from which files are copied up by blocks: below, copying all costs less than what merged
// reads cost later.
const blockCopyUp = 1 << 20

// target opens a file of the upper for changes of its contents; a metacopy becomes partial. tree is held.
func (o *Overlay) target(n *node) (target, error) {
	d, err := o.openFile(n, fdWrite)
	if err != nil || len(n.below) == 0 {
		return target{d: d, n: n, top: n.top}, err
	}
	t := target{d: d, n: n, top: n.top}
	if t.m, err = o.partial(n, d); err == nil {
		t.below, err = o.openParts(n.below, n)
	}
	if err == nil {
		f := &patched{own: hostFile{d}, m: t.m, below: t.below}
		err = o.settle(f, n.top, n, n.top.dirStore()) // nil of a file without a name
	}
	if err != nil {
		t.release()
		return target{}, err
	}
	return t, nil
}

// partial gives the block map of a metacopy in the upper, a new one if it has none. tree is held.
func (o *Overlay) partial(n *node, d *descriptor) (*blockMap, error) {
	o.blocks.mu.Lock()
	defer o.blocks.mu.Unlock()
	m, known := o.blocks.m[n.top]
	var err error
	if !known {
		m, err = o.loadBlocks(n.top, n)
	}
	if err != nil || m != nil && known {
		return m, err
	}
	if m == nil {
		size, err := fileSize(d.fd)
		if err != nil {
			return nil, err
		}
		m = newBlockMap(size, o.sideOf(n.top))
		if err := m.put(location{dirfd: d.fd}); err != nil {
			return nil, err
		}
		if err := (location{dirfd: d.fd}).setxattr(xattrMetacopy, []byte(metacopyPartial), 0); err != nil {
			return nil, err
		}
	}
	o.blocks.putLocked(n.top, m)
	return m, nil
}

// write is pwrite(2). Of a partial file it first copies the rest of the blocks that it touches.
func (t target) write(p []byte, off int64) (int, error) {
	if t.m == nil || len(p) == 0 {
		return pwrite(t.d.fd, p, off)
	}
	t.m.mu.RLock()
	if own, n := t.m.run(off, int64(len(p))); own && n == int64(len(p)) && !t.m.short {
		defer t.m.mu.RUnlock()
		return pwrite(t.d.fd, p, off)
	}
	t.m.mu.RUnlock()
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	size, err := t.extend(off + int64(len(p)))
	if err != nil {
		return 0, err
	}
	if err := t.put(p, off, size); err != nil {
		return 0, err
	}
	return len(p), nil
}

// extend is called before an operation that lets the file end at end or later: what a truncation has cut off must not
// show again. It gives the size so far. mu is held for writing.
func (t target) extend(end int64) (int64, error) {
	size, err := fileSize(t.d.fd)
	if err != nil {
		return 0, err
	}
	if end > size && t.m.limit > size {
		was := t.m.limit
		t.m.limit = size
		if err := t.m.put(t.location()); err != nil {
			t.m.limit = was
			return 0, err
		}
	}
	t.m.short = size < t.m.limit
	return size, nil
}

// put writes p and claims the blocks that it touches of a file of size bytes. mu is held for writing.
func (t target) put(p []byte, off, size int64) error {
	m := t.m
	show := min(m.limit, size)
	end := off + int64(len(p))
	first, last := off>>m.shift, (end-1)>>m.shift
	loose := map[int64]bool{}
	for _, b := range []int64{first, last} {
		if _, done := loose[b]; done || b<<m.shift >= show || m.state(b) != blockBelow {
			continue
		}
		zeros, err := t.surround(b, off, end, show)
		if err != nil {
			return err
		}
		loose[b] = zeros
	}
	if err := pwriteFull(t.d.fd, p, off); err != nil {
		return err
	}
	if first<<m.shift >= show {
		return nil
	}
	last = min(last, (show-1)>>m.shift)
	if !m.anyBelow(first, last) {
		return nil
	}
	return m.claim(t.location(), first, last, func(b int64) blockState {
		switch s := m.state(b); {
		case s != blockBelow:
			return s
		case loose[b]:
			return blockLoose
		}
		return blockOwn
	})
}

// anyBelow reports whether one of the blocks is blockBelow. mu is held.
func (m *blockMap) anyBelow(first, last int64) bool {
	for b := first; b <= last; b++ {
		if m.state(b) == blockBelow {
			return true
		}
	}
	return false
}

// surround copies what of block b lies outside of [off, end) from below, or tells that all of the block is zeros there,
// which need not be copied. mu is held for writing.
func (t target) surround(b, off, end, show int64) (zeros bool, err error) {
	from := b << t.m.shift
	to := min(from+1<<t.m.shift, show)
	if off <= from && end >= to {
		return false, nil
	}
	buf := make([]byte, to-from)
	if k, err := t.below.ReadAt(buf, from); k < len(buf) {
		if err == nil || errors.Is(err, io.EOF) {
			return false, fmt.Errorf("file ends at %d of %d bytes: %w", from+int64(k), to, unix.EIO)
		}
		return false, fmt.Errorf("%w: %w", unix.EIO, err)
	}
	if allZero(buf) {
		// What an operation that was cut short has left there must not show.
		return true, t.punch(from, to)
	}
	if off > from {
		if err := pwriteFull(t.d.fd, buf[:min(off, to)-from], from); err != nil {
			return false, err
		}
	}
	if end < to {
		return false, pwriteFull(t.d.fd, buf[end-from:], end)
	}
	return false, nil
}

func allZero(p []byte) bool { return len(p) == 0 || p[0] == 0 && bytes.Equal(p[1:], p[:len(p)-1]) }

// punch makes a hole in the host's file.
func (t target) punch(from, to int64) error {
	return fallocate(t.d.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
}

// truncate is ftruncate(2).
func (t target) truncate(size int64) error {
	if t.m == nil {
		return unix.Ftruncate(t.d.fd, size)
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if _, err := t.extend(size); err != nil {
		return err
	}
	if err := unix.Ftruncate(t.d.fd, size); err != nil {
		return err
	}
	t.m.short = size < t.m.limit
	return nil
}
