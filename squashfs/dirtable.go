package squashfs

import (
	"bytes"
	"io/fs"
	"sort"
	"sync/atomic"
)

const (
	// dirTableMax is the length in bytes of the longest listing that is read as a whole when names are looked up in it.
	// It holds some 4,000 names.
	dirTableMax = 16 * metadataSize
	// dirTableSmall is up to which length that is done for the first name. Longer listings have an index, which is
	// enough for one name.
	dirTableSmall = metadataSize
	// dirTableSlots is how many directories of an image stay in memory: programs that look up one name look up its
	// neighbours next.
	dirTableSlots = 16
)

// dirTable holds a directory's names in order; immutable. The names lie in metadata blocks, which it keeps alive.
type dirTable struct {
	ref  Ref
	list []listed
	seen bool // only: a name was looked up, there is no list
}

// dirTables holds the tables of recently used directories, each in a slot determined by its inode's location.
type dirTables [dirTableSlots]atomic.Pointer[dirTable]

func (t *dirTables) slot(r Ref) *atomic.Pointer[dirTable] {
	return &t[uint64(r)*0x9e3779b97f4a7c15>>60%dirTableSlots]
}

// table returns the names of a directory. It returns nil if that does not pay yet or never, or if the listing is
// damaged or not sorted: then the listing must be searched for the name.
func (n *Inode) table() *dirTable {
	if n.listing() > dirTableMax {
		return nil
	}
	slot := n.im.tables.slot(n.ref)
	t := slot.Load()
	known := t != nil && t.ref == n.ref
	switch {
	case known && !t.seen:
		return t
	case !known && n.listing() > dirTableSmall:
		slot.Store(&dirTable{ref: n.ref, seen: true})
		return nil
	}
	w, err := n.walkDir(nil)
	if err != nil || !n.indexHolds() {
		return nil
	}
	t = &dirTable{ref: n.ref, list: make([]listed, 0, n.listing()/(dirEntrySize+8))}
	for {
		e, ok, err := w.next()
		if err != nil {
			return nil
		}
		if !ok {
			slot.Store(t)
			return t
		}
		if last := len(t.list) - 1; last >= 0 && bytes.Compare(t.list[last].name, e.name) >= 0 {
			return nil
		}
		t.list = append(t.list, e)
	}
}

// indexHolds reports whether all entries of a directory's index lead to the names that they state. Damage must not go
// unnoticed because the index is not needed.
func (n *Inode) indexHolds() bool {
	if n.raw.indexes == 0 {
		return true
	}
	list, err := n.dirIndex()
	if err != nil {
		return false
	}
	for i := range list {
		from := &list[i]
		w, err := n.walkDir(from)
		if err != nil {
			return false
		}
		if e, ok, err := w.next(); err != nil || !ok || !from.leadsTo(e.name) {
			return false
		}
	}
	return true
}

// lookup finds a name. It returns fs.ErrNotExist if there is none.
func (t *dirTable) lookup(im *Image, name string) (DirEntry, error) {
	i := sort.Search(len(t.list), func(i int) bool { return string(t.list[i].name) >= name })
	if i == len(t.list) || string(t.list[i].name) != name {
		return DirEntry{}, fs.ErrNotExist
	}
	return im.namedEntry(t.list[i], name)
}
