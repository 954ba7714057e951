package squashfs

import (
	"encoding/binary"
	"sort"

	"snapfs/internal/lockorder"
)

// indexEntry says where a run of a listing begins, and with which name. Its location is computed from the start of the
// listing, and must agree with what the image claims.
type indexEntry struct {
	name   string // "" for the listing's start
	at     position
	before int64 // bytes of the listing before it
	until  int64 // bytes of the listing before the next one
}

// leadsTo reports whether the listing has name there. nil and the start claim nothing.
func (x *indexEntry) leadsTo(name []byte) bool {
	return x == nil || x.name == "" || x.name == string(name)
}

// seek finds the last index entry that is not after name, nil if there is no index.
func (n *Inode) seek(name string) (*indexEntry, error) {
	if n.raw.indexes == 0 {
		return nil, nil //nolint:nilnil // a missing index is not an error
	}
	list, err := n.dirIndex()
	if err != nil {
		return nil, err
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].name > name })
	return &list[i-1], nil // the first one's name is before any other
}

// dirIndex returns the index of a directory. The cache keeps it, so that looking up all names of a directory reads it
// once.
func (n *Inode) dirIndex() ([]indexEntry, error) {
	e, owner := n.im.cache.acquire(cacheKey{n.im.id, int64(n.ref), indexKey})
	if owner {
		list, err := n.loadIndex()
		n.im.cache.settleIndex(e, list, err)
	}
	return e.index, e.err
}

// loadIndex reads the index behind an extended directory inode: 65,535 entries at most.
func (n *Inode) loadIndex() ([]indexEntry, error) {
	c, err := n.im.cursor(n.im.inodes, n.rest)
	if err != nil {
		return nil, err
	}
	block, behind := n.im.dirs.start+int64(n.raw.start), int64(0) // the listing's blocks, and how many were passed
	list := []indexEntry{{at: position{block, int(n.raw.offset)}, until: n.listing()}}
	for range n.raw.indexes {
		at := c.at
		x, err := c.dirIndex()
		if err != nil {
			return nil, locate(at, err)
		}
		before := int64(x.index)
		if before >= n.listing() {
			return nil, corrupt(at, "directory index at byte %d of a listing of %d", before, n.listing())
		}
		last := &list[len(list)-1]
		if before == 0 && len(list) == 1 && int64(x.start) == block-n.im.dirs.start {
			continue // some writers index the start too
		}
		if last.before >= before || last.name >= x.name {
			return nil, corrupt(at, "directory index entry %q is out of order", x.name)
		}
		last.until = before
		for target := (int64(n.raw.offset) + before) / metadataSize; behind < target; behind++ {
			if block, err = n.im.nextMetadata(block, n.im.dirs.end); err != nil {
				return nil, err
			}
		}
		if int64(x.start) != block-n.im.dirs.start {
			return nil, corrupt(at, "directory index entry %q points at block %d, want %d", x.name, x.start,
				block-n.im.dirs.start)
		}
		list = append(list, indexEntry{
			name:   x.name,
			at:     position{block, int((int64(n.raw.offset) + before) % metadataSize)},
			before: before,
			until:  n.listing(),
		})
	}
	return list, nil
}

// dirIndex reads one entry of an index.
func (c *cursor) dirIndex() (dirIndex, error) {
	var x dirIndex
	b, err := c.take(dirIndexSize)
	if err != nil {
		return x, err
	}
	size, err := x.decode(b)
	if err != nil {
		return x, err
	}
	name, err := c.take(size)
	x.name = string(name)
	return x, err
}

// nextMetadata returns where the metadata block after the one at off begins, without unpacking it.
func (im *Image) nextMetadata(off, end int64) (int64, error) {
	var b [2]byte
	if off > end-3 {
		return 0, corrupt(off, "metadata block outside its table, which ends at %d", end)
	}
	if err := readFull(im.r, b[:], off); err != nil {
		return 0, err
	}
	n, _ := metadataHeader(binary.LittleEndian.Uint16(b[:]))
	if n == 0 || n > metadataSize || off+2+int64(n) > end {
		return 0, corrupt(off, "metadata block of %d bytes", n)
	}
	return off + 2 + int64(n), nil
}

// maxRefSet bounds a refSet to about 2 MiB.
const maxRefSet = 1 << 16

// refSet is a set of inodes. When it is full, it is emptied.
type refSet struct {
	mu   lockorder.Mutex[lockorder.RefSet]
	refs map[Ref]struct{} // guarded by mu
}

func (s *refSet) has(r Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.refs[r]
	return ok
}

func (s *refSet) add(r Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refs == nil || len(s.refs) >= maxRefSet {
		s.refs = make(map[Ref]struct{})
	}
	s.refs[r] = struct{}{}
}
