package scale

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// tinySize is the size of a tiny file, and tinyDir how many lie in a directory, and directories in the one above.
const (
	tinySize = 100
	tinyDir  = 500
)

// tinySource is a tree of different tiny files that is on no disk: ROOT/d0001/d0002/f00000123.
type tinySource struct{ files int }

// tinyNode is the handle of an entry: its depth, and the first file in it.
type tinyNode struct{ depth, first int }

func (s tinySource) Root(context.Context) (*squashfs.Entry, error) {
	return s.entry("", tinyNode{}), nil
}

func (s tinySource) entry(name string, n tinyNode) *squashfs.Entry {
	e := &squashfs.Entry{
		Name: name, Handle: n,
		Attr: squashfs.Attr{
			Ino: uint64(n.first)*4 + uint64(n.depth) + 1, Mode: unix.S_IFDIR | 0o755, Nlink: 2,
			Mtime: squashfs.Time{Sec: 1_700_000_000 + int64(n.first), Nsec: uint32(n.first % 1e9)},
		},
	}
	if n.depth == 3 {
		e.Attr.Mode, e.Attr.Nlink, e.Attr.Size = unix.S_IFREG|0o644, 1, tinySize
	}
	return e
}

func (s tinySource) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	n := dir.Handle.(tinyNode)
	prefix, step := "d", tinyDir*tinyDir
	for range n.depth {
		step /= tinyDir
	}
	if step == 1 {
		prefix = "f"
	}
	var names []string
	for first := n.first; first < s.files && first < n.first+step*tinyDir; first += step {
		names = append(names, fmt.Sprintf("%s%08d", prefix, first))
	}
	return names, nil
}

func (s tinySource) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	first, err := strconv.Atoi(name[1:])
	return s.entry(name, tinyNode{dir.Handle.(tinyNode).depth + 1, first}), err
}

func (s tinySource) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	return tinyFile(file.Handle.(tinyNode).first), nil
}

// tinyFile is the contents of a tiny file.
type tinyFile int

func (f tinyFile) contents() []byte {
	b := make([]byte, 0, tinySize)
	b = fmt.Appendf(b, "file %d of many\n", int(f))
	for x := uint64(f) + 1; len(b) < tinySize; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b[:tinySize]
}

func (f tinyFile) ReadAt(p []byte, off int64) (int, error) {
	if off >= tinySize {
		return 0, io.EOF
	}
	n := copy(p, f.contents()[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f tinyFile) Extents() ([]squashfs.Extent, error) {
	return []squashfs.Extent{{Len: tinySize}}, nil
}

func (f tinyFile) Close() error { return nil }
