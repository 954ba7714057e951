package layers

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// span is a range of a file.
type span struct{ from, to int64 }

// spans are ranges in order that do not meet.
type spans []span

// bytes is how many bytes the spans have, each rounded to a unit of the host.
func (s spans) bytes(unit int64) (n int64) {
	for _, x := range s {
		n += (x.to - x.from + unit - 1) &^ (unit - 1)
	}
	return n
}

// fit tells up to where a file may be written with room bytes for what it lacks.
func (s spans) fit(room, unit int64) int64 {
	room &^= unit - 1
	for _, x := range s {
		n := (x.to - x.from + unit - 1) &^ (unit - 1)
		if n > room {
			return x.from + room
		}
		room -= n
	}
	return 1 << 62
}

// fiemap is struct fiemap of linux/fiemap.h with room for extents.
type fiemap struct {
	start, length                  uint64
	flags, mapped, count, reserved uint32
	extents                        [fiemapExtents]fiemapExtent
}

type fiemapExtent struct {
	logical, physical, length uint64
	reserved64                [2]uint64
	flags                     uint32
	reserved                  [3]uint32
}

const (
	fiemapExtents = 32
	fsIocFiemap   = 0xC020660B
)

// holes lists where the host has allocated nothing in a range of a file. What is allocated and not written yet is no
// hole, as far as the host says so.
func holes(fd int, from, to int64) (spans, error) {
	var out spans
	var m fiemap
	for at := from; at < to; {
		m = fiemap{start: uint64(at), length: uint64(to - at), count: fiemapExtents}
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsIocFiemap, uintptr(unsafe.Pointer(&m)))
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return seekHoles(fd, from, to) // tmpfs, among others, cannot
		}
		for _, e := range m.extents[:min(m.mapped, fiemapExtents)] {
			if begin := int64(e.logical); begin > at {
				out = append(out, span{at, min(begin, to)})
			}
			at = max(at, int64(e.logical+e.length))
		}
		if m.mapped < fiemapExtents {
			if at < to {
				out = append(out, span{at, to})
			}
			break
		}
	}
	return out, nil
}

// seekHoles is holes for a host that only tells data from zeros. The position of a descriptor that is shared means
// nothing.
func seekHoles(fd int, from, to int64) (out spans, err error) {
	for at := from; at < to; {
		data, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return append(out, span{at, to}), nil
		}
		if err != nil {
			return nil, err
		}
		if data > at {
			out = append(out, span{at, min(data, to)})
		}
		if data >= to {
			break
		}
		if at, err = unix.Seek(fd, data, unix.SEEK_HOLE); err != nil {
			return nil, err
		}
	}
	return out, nil
}
