package layers

import (
	"errors"

	"golang.org/x/sys/unix"
)

// movesData reports whether fallocate(2) in this mode is for whole files only.
func movesData(mode uint32) bool {
	const keep = unix.FALLOC_FL_KEEP_SIZE
	switch mode {
	case 0, keep, unix.FALLOC_FL_PUNCH_HOLE | keep, unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | keep:
		return false
	}
	return true
}

// fallocate is fallocate(2) in all modes that movesData does not name.
func (t target) fallocate(mode uint32, off, length int64) error {
	if t.m == nil {
		return fallocate(t.d.fd, mode, off, length)
	}
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	end := off
	if mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
		end += length
	}
	size, err := t.extend(end)
	if err != nil {
		return err
	}
	if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0 {
		if err := t.zero(off, min(off+length, size), size); err != nil {
			return err
		}
	}
	if mode&unix.FALLOC_FL_PUNCH_HOLE != 0 {
		if off+length <= size {
			return nil
		}
		off, length = max(off, size), off+length-max(off, size) // what is allocated beyond the end
		return fallocate(t.d.fd, mode, off, length)
	}
	return fallocate(t.d.fd, mode&unix.FALLOC_FL_KEEP_SIZE, off, length)
}

// zero makes a range within the file zeros. mu is held for writing.
func (t target) zero(off, end, size int64) error {
	m := t.m
	show := min(m.limit, size)
	if to := max(off, show); to < end {
		if err := t.punch(to, end); err != nil {
			return err
		}
	}
	if end = min(end, show); off >= end {
		return nil
	}
	first, last := (off+1<<m.shift-1)>>m.shift, end>>m.shift // whole blocks from first to before last
	if end == show {
		last = (show + 1<<m.shift - 1) >> m.shift
	}
	if first >= last {
		if cut := first << m.shift; off < cut && cut < end {
			if err := t.zeroPart(off, cut, size); err != nil {
				return err
			}
			off = cut
		}
		return t.zeroPart(off, end, size)
	}
	if err := t.zeroPart(off, first<<m.shift, size); err != nil {
		return err
	}
	if err := t.zeroPart(min(end, last<<m.shift), end, size); err != nil {
		return err
	}
	// A hole in an own block would be taken for lost data after a power failure, so it is loose before it has one; one
	// that is claimed must have no more than zeros, so it is claimed after that.
	err := m.claim(t.location(), first, last-1, func(b int64) blockState {
		if m.state(b) == blockBelow {
			return blockBelow
		}
		return blockLoose
	})
	if err != nil {
		return err
	}
	if err := t.punch(first<<m.shift, min(end, last<<m.shift)); err != nil {
		return err
	}
	return m.claim(t.location(), first, last-1, func(int64) blockState { return blockLoose })
}

// zeroPart makes a part of one block zeros.
func (t target) zeroPart(off, end, size int64) error {
	if off >= end {
		return nil
	}
	if t.m.state(off>>t.m.shift) == blockLoose {
		return t.punch(off, end)
	}
	return t.put(make([]byte, end-off), off, size)
}

// fallocate is fallocate(2), again when interrupted.
func fallocate(fd int, mode uint32, off, length int64) error {
	for {
		err := unix.Fallocate(fd, mode, off, length)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
