package squashfs

import "context"

// Sharer is a File whose source knows which of its files have the same contents.
type Sharer interface {
	File
	ContentsID(ctx context.Context) (ContentsID, error)
}

// maxKnown bounds the memory of knownContents, approximately.
const maxKnown = 32 << 20

// Costs in knownContents, in bytes, approximately.
const (
	knownCost       = 192 // a file
	knownExtentCost = 96  // one of its extents, and what the layout has for it
)

// knownContents remembers files by their contents, so that files that the source says to be the same are read and
// written once: a small image may have any number of files that share their blocks. When it is full, it is emptied. For
// one goroutine.
type knownContents struct {
	files map[knownKey]written
	cost  int
}

// knownKey is what equal files have in common. A source may show an inode with another size than it has.
type knownKey struct {
	id   ContentsID
	size int64
}

// written is the result of writing a file.
type written struct {
	layout  *layout
	extents []Extent
	data    int64
}

func (k *knownContents) add(key knownKey, f written) {
	cost := knownCost + knownExtentCost*len(f.extents)
	if cost > maxKnown/4 {
		return
	}
	if k.cost += cost; k.cost > maxKnown || k.files == nil {
		k.files, k.cost = make(map[knownKey]written), cost
	}
	k.files[key] = f
}
