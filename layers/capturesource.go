package layers

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// Root implements squashfs.Source, as the methods below do: with what scan finds when the image is begun.
func (c *capture) Root(ctx context.Context) (*squashfs.Entry, error) {
	if c.root == nil {
		if err := c.scan(ctx); err != nil {
			return nil, err
		}
	}
	return c.root.entry, nil
}

func (c *capture) Names(_ context.Context, dir *squashfs.Entry) ([]string, error) {
	d := dir.Handle.(*captureDir)
	if c.since != nil {
		return append(d.plan.emit, d.plan.gone...), nil
	}
	names := make([]string, 0, len(d.names))
	for i, e := range d.list {
		if e == nil {
			continue
		}
		if sub := dirOf(e); sub == nil || !sub.gone {
			names = append(names, d.names[i].name)
		}
	}
	return names, nil
}

func (c *capture) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	c.closeFile()
	d := dir.Handle.(*captureDir)
	if _, gone := slices.BinarySearch(d.plan.gone, name); gone {
		return &squashfs.Entry{Name: name, Attr: squashfs.Attr{Mode: unix.S_IFCHR, Nlink: 1}}, nil
	}
	i := d.find(name)
	e := d.list[i]
	if !isReg(e.Attr.Mode) || e.Attr.Size == 0 || c.another(e, &d.stats[i]) {
		return e, nil
	}
	switch h := e.Handle.(type) {
	case *knownFile:
		c.told.Unread++
		c.file = h
		return e, nil
	case *captureFile:
		switch {
		case h.whole != nil:
			return c.given(d, i, h.whole), nil
		case isMetacopy(e):
			c.file = emptyFile{}
			return e, nil
		}
	}
	return c.openLate(d, i)
}

// find gives the index of a name. The writer asks for one after the other.
func (d *captureDir) find(name string) int {
	for ; d.next < len(d.names); d.next++ {
		if d.names[d.next].name == name {
			return d.next
		}
	}
	i, _ := searchNames(d.names, name)
	return i
}

// another reports whether an entry is one more name of a file that the image has, of which the same is kept then.
func (c *capture) another(e *squashfs.Entry, s *keptStat) bool {
	if e.Attr.Nlink < 2 {
		return false
	}
	if first := c.names[e.Inode.Inode]; first != nil {
		*s = *first
		return true
	}
	if c.names == nil {
		c.names = map[uint64]*keptStat{}
	}
	c.names[e.Inode.Inode] = s
	return false
}

func isMetacopy(e *squashfs.Entry) bool {
	return slices.ContainsFunc(e.Xattrs, func(x squashfs.Xattr) bool { return x.Name == xattrMetacopy })
}

// given presents a file that is in memory.
func (c *capture) given(d *captureDir, i int, w *wholeContents) *squashfs.Entry {
	got := w.entry
	got.Name = d.names[i].name
	if w.torn {
		c.tear(d.path(got.Name))
	}
	w.noted.keep(&d.stats[i])
	got.Handle = d
	c.file = &capturedFile{by: c, noted: w.noted, size: int64(len(w.data)), extents: w.extents, data: w.data, fd: -1}
	return &got
}

// path is the path of a name in the upper.
func (d *captureDir) path(name string) string {
	up := d.part.path()
	if up == "/" {
		return name
	}
	return up[1:] + "/" + name
}

// openLate presents a file that was not read along with the names: as it is now. What has no name any more is left out.
func (c *capture) openLate(d *captureDir, i int) (*squashfs.Entry, error) {
	late, err := c.openNow(d, i)
	if hasGone(err) {
		if c.since != nil && d.was.find(i, d.names[i].name) != nil { // the last capture still has it
			return nil, errWhole
		}
		c.told.Quiet, d.stats[i] = false, keptStat{}
		return nil, nil
	}
	return late, err
}

func (c *capture) openNow(d *captureDir, i int) (*squashfs.Entry, error) {
	name := d.names[i].name
	h, err := c.upper.dir(d.part)
	if err != nil {
		return nil, err
	}
	defer h.release()
	fd, err := c.openRegular(h.fd, name)
	if err != nil {
		return nil, err
	}
	w, err := c.readOpen(fd)
	if err == nil {
		_ = unix.Close(fd) // it was read only
		return c.given(d, i, w), nil
	}
	if !errors.Is(err, errTooLong) {
		_ = unix.Close(fd) // the first error counts
		return nil, err
	}
	f := &capturedFile{by: c, fd: fd, path: d.path(name), kept: &d.stats[i]}
	e := &squashfs.Entry{}
	if err := c.begin(f, e); err != nil {
		_ = unix.Close(f.fd) // the first error counts
		return nil, err
	}
	f.noted.keep(f.kept)
	e.Name, e.Handle = name, d
	c.file = f
	return e, nil
}

// begin prepares a long file: a copy of it that shares its blocks, if the host makes one.
func (c *capture) begin(f *capturedFile, e *squashfs.Entry) (err error) {
	for try := 1; ; try++ {
		if f.was, err = c.describeFile(f.fd, e, &f.noted); err != nil {
			return err
		}
		f.size = e.Attr.Size
		copied, err := c.clone(f.fd)
		if err != nil {
			return nil // it is read while it is written to
		}
		a, err := location{dirfd: copied}.hostStat()
		same := false
		if err == nil {
			same, err = unchanged(f.fd, f.was)
		}
		if err == nil && !same && try < captureTries {
			_ = unix.Close(copied) // it has no name
			continue
		}
		_ = unix.Close(f.fd) // it was read only
		f.fd, f.path = copied, ""
		f.size, e.Attr.Size = int64(a.Size), int64(a.Size)
		return err
	}
}

// clone makes a copy of a file that shares its blocks with it, without a name.
func (c *capture) clone(fd int) (int, error) {
	if c.scratch == "" || c.noClones {
		return -1, unix.EOPNOTSUPP
	}
	to, err := unix.Open(c.scratch, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err == nil {
		if err = unix.IoctlFileClone(to, fd); err != nil {
			_ = unix.Close(to) // it has no name
		}
	}
	c.noClones = errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EXDEV)
	return to, err
}

func (c *capture) Open(_ context.Context, file *squashfs.Entry) (squashfs.File, error) {
	f := c.file
	if c.file = nil; f == nil {
		return nil, errors.New("a file is read out of turn")
	}
	if d, ok := file.Handle.(*captureDir); ok {
		c.sink.predict(c.before(d, file.Name), false)
	} else {
		c.sink.predict(nil, false)
	}
	return f, nil
}

// before is the file that the layers below have in place of one; nil if there is none.
func (c *capture) before(d *captureDir, name string) *part {
	if c.last != nil {
		return c.inLast(d, name)
	}
	below, err := c.belowOf(d)
	if err != nil || len(below) == 0 {
		return nil
	}
	h, err := c.o.search(&node{top: below[0], below: below[1:], typ: unix.S_IFDIR}, 0, name)
	if err != nil || !isReg(h.attr.Mode) {
		return nil
	}
	return h.parts[len(h.parts)-1]
}

// closeFile closes the file of an entry that nobody has opened.
func (c *capture) closeFile() {
	if c.file != nil {
		_ = c.file.Close() // it was not read
		c.file = nil
	}
}
