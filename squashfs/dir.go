package squashfs

import (
	"bytes"
	"io/fs"
	"iter"

	"golang.org/x/sys/unix"
)

// maxFileName is NAME_MAX: the format has room for one byte more, Linux does not.
const maxFileName = 255

// dirWalk iterates over a directory's listing.
type dirWalk struct {
	c    cursor
	left int64 // bytes of the listing not yet read
	head dirHeader
	run  uint32 // entries of the run not yet read
}

// listed is one entry as it is read. Callers must not change name.
type listed struct {
	name   []byte
	ref    Ref
	number uint32
	typ    uint16 // basic
}

// listing is the length of the directory's listing in the directory table.
func (n *Inode) listing() int64 { return max(int64(n.raw.size)-dirSizeBias, 0) }

// walkDir starts at a run header of the listing, or at its beginning if from is nil.
func (n *Inode) walkDir(from *indexEntry) (dirWalk, error) {
	w := dirWalk{left: n.listing()}
	if w.left == 0 {
		return w, nil
	}
	at := position{n.im.dirs.start + int64(n.raw.start), int(n.raw.offset)}
	if from != nil {
		at, w.left = from.at, w.left-from.before
	}
	var err error
	w.c, err = n.im.cursor(n.im.dirs, at)
	return w, err
}

// next returns the next entry; ok is false at the end.
func (w *dirWalk) next() (e listed, ok bool, err error) {
	if w.run == 0 {
		if w.left == 0 {
			return e, false, nil
		}
		b, err := w.take(dirHeaderSize)
		if err != nil {
			return e, false, err
		}
		if err := w.head.decode(b); err != nil {
			return e, false, locate(w.c.at, err)
		}
		w.run = w.head.count
	}
	w.run--
	b, err := w.take(dirEntrySize)
	if err != nil {
		return e, false, err
	}
	var raw dirEntry
	size, err := raw.decode(b)
	if err != nil {
		return e, false, locate(w.c.at, err)
	}
	if e.name, err = w.take(size); err != nil {
		return e, false, err
	}
	if reason := badName(e.name); reason != "" {
		return e, false, corrupt(w.c.at, "directory entry %q: %s", e.name, reason)
	}
	e.ref = makeRef(uint64(w.head.start), int(raw.offset))
	e.typ = raw.typ
	number := int64(w.head.number) + int64(raw.delta)
	if number < 1 || number > int64(w.c.im.sb.inodes) {
		return e, false, corrupt(w.c.at, "directory entry %q: inode number %d of %d", e.name, number, w.c.im.sb.inodes)
	}
	e.number = uint32(number)
	return e, true, nil
}

func (w *dirWalk) take(n int) ([]byte, error) {
	if int64(n) > w.left {
		return nil, corrupt(w.c.at, "directory listing ends inside an entry")
	}
	w.left -= int64(n)
	return w.c.take(n)
}

// badName says why no file can have a name.
func badName(name []byte) string {
	switch {
	case len(name) > maxFileName:
		return "name too long"
	case string(name) == "." || string(name) == "..":
		return "reserved name"
	case bytes.IndexByte(name, '/') >= 0 || bytes.IndexByte(name, 0) >= 0:
		return "name with a slash or NUL"
	default:
		return ""
	}
}

// dirEntry is what callers see of a listed name.
func (im *Image) dirEntry(e listed) (DirEntry, error) { return im.namedEntry(e, string(e.name)) }

// namedEntry is dirEntry for callers that have the name already.
func (im *Image) namedEntry(e listed, name string) (DirEntry, error) {
	ino, err := im.ino(e.number)
	return DirEntry{Name: name, Ref: e.ref, Mode: fileType(e.typ), Ino: ino}, err
}

func (w *dirWalk) unsorted(name []byte) error {
	return corrupt(w.c.at, "directory entry %q is out of order or there twice", name)
}

// Lookup finds one name in a directory by binary search, of its index if it is large. It returns fs.ErrNotExist if the
// name is not there, and unix.ENOTDIR if n is not a directory. Only of sorted directories does it say that a name is
// missing.
func (n *Inode) Lookup(name string) (DirEntry, error) {
	if n.raw.basic() != typeDir {
		return DirEntry{}, unix.ENOTDIR
	}
	if t := n.table(); t != nil {
		return t.lookup(n.im, name)
	}
	from, err := n.seek(name)
	if err != nil {
		return DirEntry{}, err
	}
	e, found, err := n.scan(name, from)
	if err == nil && !found && from != nil && !n.im.ordered.has(n.ref) {
		// The index is wrong: search the whole listing, once for each directory.
		if e, found, err = n.scan(name, nil); err == nil && !found {
			n.im.ordered.add(n.ref)
		}
	}
	if err != nil {
		return DirEntry{}, err
	}
	if !found {
		return DirEntry{}, fs.ErrNotExist
	}
	return n.im.namedEntry(e, name)
}

// scan searches for a name, from a location of the index up to the next one, or everywhere if from is nil. Names that
// were passed must be in order; otherwise, not finding the name is an error.
func (n *Inode) scan(name string, from *indexEntry) (e listed, found bool, err error) {
	w, err := n.walkDir(from)
	if err != nil {
		return e, false, err
	}
	end := int64(0) // of w.left
	if from != nil {
		end = n.listing() - from.until
	}
	var last []byte
	sorted := true
	for w.left > end || w.run > 0 {
		e, _, err := w.next()
		if err != nil {
			return e, false, err
		}
		if last == nil && !from.leadsTo(e.name) {
			return e, false, corrupt(w.c.at, "directory index says %q where %q is", from.name, e.name)
		}
		if string(e.name) == name {
			return e, true, nil
		}
		if sorted = sorted && bytes.Compare(last, e.name) < 0; !sorted && from != nil {
			return e, false, w.unsorted(e.name)
		}
		last = e.name
	}
	if !sorted {
		return e, false, w.unsorted(last)
	}
	return e, false, nil
}

// ReadDir yields the names after the given one ("" = from the start) in byte order. For a directory that is not sorted
// it ends with an error.
func (n *Inode) ReadDir(after string) iter.Seq2[DirEntry, error] {
	return func(yield func(DirEntry, error) bool) {
		stopped := false
		err := n.list(after, func(e listed) bool {
			d, err := n.im.dirEntry(e)
			stopped = !yield(d, err) || err != nil
			return !stopped
		})
		if err != nil && !stopped {
			yield(DirEntry{}, err)
		}
	}
}

// list calls visit for each name after the given one until visit returns false.
func (n *Inode) list(after string, visit func(listed) bool) error {
	if n.raw.basic() != typeDir {
		return unix.ENOTDIR
	}
	var from *indexEntry
	if after != "" {
		var err error
		if from, err = n.seek(after); err != nil {
			return err
		}
	}
	w, err := n.walkDir(from)
	if err != nil {
		return err
	}
	var last []byte
	for {
		e, ok, err := w.next()
		if err != nil || !ok {
			return err
		}
		switch {
		case last == nil && !from.leadsTo(e.name):
			return corrupt(w.c.at, "directory index says %q where %q is", from.name, e.name)
		case bytes.Compare(last, e.name) >= 0:
			return w.unsorted(e.name)
		}
		last = e.name
		if string(e.name) > after && !visit(e) {
			return nil
		}
	}
}
