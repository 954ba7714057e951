package layers

import (
	"bytes"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"snapfs/internal/statcache"
	"snapfs/squashfs"
)

// A file is whole if its size and change time are the same before and after it was read. A write sets the time before it
// copies anything, and holds the lock of the inode until it has copied all: so the time is looked at first, then extents
// are asked for, which takes that lock, and then the file is read. The clock of change times ticks
// slowly on some hosts: what changed in this tick is read twice, and must be the same. A program that writes by a shared
// mapping changes the time only with the first write to a page since that was last written to the disk, so contents
// written by mappings are those of some moment for each page.

// wholeContents are the contents of a file that was read into memory, and what the image has of it besides.
type wholeContents struct {
	entry   squashfs.Entry // without name
	data    []byte
	extents []squashfs.Extent
	noted   noting
	torn    bool // it was written to whenever it was read
}

// noting is what will be noted of a file that is read; seen is nil if nothing.
type noting struct {
	seen Seen
	file statcache.File
	bare bool // it has no extended attributes
}

// keep notes for the next capture that an inode is as it was when its contents were read.
func (n *noting) keep(s *keptStat) {
	if n.seen != nil {
		*s = keptStat{ino: n.file.Ino, ctime: n.file.Ctime, size: n.file.Size, sure: true, there: true}
	}
}

// errTooLong says that a file is not to be read into memory.
var errTooLong = errors.New("file too long for memory")

// openRegular opens a regular file to be captured.
func (c *capture) openRegular(dirfd int, name string) (int, error) {
	return openat(dirfd, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOATIME, 0)
}

// readWhole reads a short file into memory.
func (c *capture) readWhole(dirfd int, name string) (*wholeContents, error) {
	fd, err := c.openRegular(dirfd, name)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return c.readOpen(fd)
}

// readOpen is readWhole for an open file.
func (c *capture) readOpen(fd int) (*wholeContents, error) {
	for try := 1; ; try++ {
		w, err := c.readOnce(fd)
		if err != nil || !w.torn || try == captureTries {
			return w, err
		}
	}
}

// readOnce reads a file, and reports whether that is torn.
func (c *capture) readOnce(fd int) (*wholeContents, error) {
	now := coarseNow()
	w := &wholeContents{}
	before, err := c.describeFile(fd, &w.entry, &w.noted)
	if err != nil {
		return nil, err
	}
	size := int64(before.Size)
	if size > captureWhole {
		return nil, errTooLong
	}
	if w.extents, err = hostExtents(fd); err != nil { // waits for a write that has set the time before
		return nil, err
	}
	w.data = make([]byte, size)
	n, err := preadFull(fd, w.data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	w.data = w.data[:n]
	w.entry.Attr.Size = int64(n)
	same, err := unchanged(fd, before)
	if ctime, ok := nanoseconds(before.Ctime); err == nil && same && (!ok || ctime >= now) {
		again := make([]byte, size)
		if k, err := preadFull(fd, again, 0); err != nil || k != n || !bytes.Equal(again, w.data) {
			same = false
		}
	}
	if w.torn = !same; w.torn {
		w.noted.seen = nil
	}
	return w, err
}

// describeFile is describe for an open regular file, which is written to the disk if it is to be noted.
func (c *capture) describeFile(fd int, e *squashfs.Entry, n *noting) (Attr, error) {
	var f found
	a, err := c.describe(location{dirfd: fd}, e, &f)
	if err != nil {
		return a, err
	}
	if !isReg(a.Mode) {
		return a, unix.ENOENT // something else has its name now
	}
	*n = noting{}
	if file, ok := notedAs(&a); ok && c.recaller != nil && c.recaller.settled(fd, file.Ctime) {
		*n = noting{seen: c.recaller.seen, file: file, bare: len(e.Xattrs) == 0 && f.ref == 0}
	}
	e.Handle = nil
	return a, nil
}

// unchanged reports whether an open file has the size and the change time that it had.
func unchanged(fd int, was Attr) (bool, error) {
	a, err := location{dirfd: fd}.hostStat()
	return a.Size == was.Size && a.Ctime == was.Ctime, err
}

// capturedFile is a file whose contents are given to the store: those in memory, or those of a descriptor.
type capturedFile struct {
	by      *capture
	noted   noting
	size    int64
	extents []squashfs.Extent
	begun   bool

	data []byte
	fd   int    // -1: data
	was  Attr   // what the host said before it was read
	path string // to be told if it changed since; "": it cannot
	kept *keptStat
}

func (f *capturedFile) ReadAt(p []byte, off int64) (int, error) {
	if f.fd < 0 {
		if off >= int64(len(f.data)) {
			return 0, io.EOF
		}
		n := copy(p, f.data[off:])
		if n < len(p) {
			return n, io.EOF
		}
		return n, nil
	}
	n, err := preadFull(f.fd, p, off)
	if errors.Is(err, io.EOF) && off+int64(n) < f.size { // it became shorter
		want := int(min(int64(len(p)), f.size-off))
		clear(p[n:want])
		if n = want; n == len(p) {
			err = nil
		}
	}
	return n, err
}

func (f *capturedFile) Extents() (_ []squashfs.Extent, err error) {
	if f.fd >= 0 {
		f.extents, err = hostExtents(f.fd)
	}
	return f.extents, err
}

func (f *capturedFile) Close() error {
	if f.data = nil; f.fd < 0 {
		return nil
	}
	same, err := true, error(nil)
	if f.path != "" && f.begun {
		same, err = unchanged(f.fd, f.was)
	}
	_ = unix.Close(f.fd) // it was read only
	if !same {
		f.by.tear(f.path)
		f.kept.sure = false
	}
	return err
}

// CopyTo implements squashfs.Copier. It copies nothing, but asks for the outline of what is read. A note of a file that
// changes while it is read is of no use: nothing with its times will be found.
func (f *capturedFile) CopyTo(to squashfs.Sink, _, n int64) (int64, bool, error) {
	begun := f.begun
	if f.begun = true; begun || f.noted.seen == nil || to != squashfs.Sink(f.by.sink) {
		return n, false, nil
	}
	head := appendNote(nil, f.extents, f.noted.file.Size, f.noted.bare)
	file, seen := f.noted.file, f.noted.seen
	return n, false, f.by.sink.Outline(func(outline []byte) { seen.Note(file, append(head, outline...)) })
}

var _ squashfs.Copier = (*capturedFile)(nil)
