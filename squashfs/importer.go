package squashfs

import (
	"fmt"
	"slices"
	"sort"
)

// ImportMemory bounds, in bytes, the structures of an ImageSource that grow with the image: the names in the
// directories above, and what identifies hard links. The writer takes about as much again.
const ImportMemory = 512 << 20

// Costs in memory, approximately.
const (
	nameCost   = 96 // a listed name without its bytes, in the source and in the writer
	linkCost   = 96 // an inode with several names
	nameFloor  = 1 << 16
	setCost    = 96 // a set of attributes that was read
	dataFloor  = 16 << 30
	dataFactor = 4096 // the best compression of logs; what files share is read once
	setsFloor  = 256 << 20
	setsFactor = 64 // sets may share values
)

// importer ensures that a tree taken from an image is a tree, and no larger than the image can hold. Every directory
// has one name, and the inode in which it is found is its parent. Listings and inodes together are no longer than their
// tables, so that none is there twice. Every inode has its own number. The cost of writing the tree is in proportion to
// the image. It keeps a bit for each inode. For one goroutine.
type importer struct {
	im    *Image
	stack []*imageNode // the directories from the root to the one listed last

	seen     []uint64        // bit by inode number: directories listed, and other inodes seen
	links    map[uint32]Ref  // inodes with several names that were seen, by their numbers
	counted  map[uint32]bool // those of them whose extension records were counted
	begun    bool            // the fields below are set
	listings int64           // bytes of listings that may still come
	inodes   int64           // bytes of the inode table that may still be used
	names    int64           // that may still come
	left     int64           // of ImportMemory
	contents int64           // bytes of contents that may still be read
	xattrs   int64           // bytes of attributes that may still be read
	extras   int64           // bytes of extension records that may still be read
}

// begin determines how much the image can hold.
func (g *importer) begin() error {
	if g.begun {
		return nil
	}
	used := int64(g.im.sb.bytesUsed)
	g.names = used + nameFloor
	g.contents = dataFloor + dataFactor*min(used, 1<<50)
	g.xattrs = setsFloor + setsFactor*min(used, 1<<50)
	g.left = ImportMemory
	claims, err := g.im.claims()
	if err == nil {
		err = g.charge(claims)
	}
	if err != nil {
		return err
	}
	if err := g.im.options(); err != nil {
		return err
	}
	for i := uint64(0); i < g.im.exports.count; i += metadataSize / exportEntrySize {
		if _, err := g.im.entry(&g.im.exports, i); err != nil {
			return err
		}
	}
	if g.listings, err = g.im.unpacked(g.im.dirs); err != nil {
		return err
	}
	if g.inodes, err = g.im.unpacked(g.im.inodes); err != nil {
		return err
	}
	x, err := g.im.section()
	if err != nil {
		return err
	}
	if x != nil {
		g.extras = int64(x.columns[extExtraBlob].rows)
	}
	g.seen = make([]uint64, g.im.sb.inodes/64+1)
	g.links = make(map[uint32]Ref)
	g.counted = make(map[uint32]bool)
	g.begun = true
	return nil
}

// claims returns how much memory the tables take whose length the image states, and checks the statements against the
// image's length. It reads headers only: a file of the host may be one hole of any length.
func (im *Image) claims() (int64, error) {
	if claimed := int64(im.sb.inodes); claimed > int64(im.sb.bytesUsed)+nameFloor {
		return 0, corrupt(sbInodes, "%d inodes in an image of %d bytes", claimed, im.sb.bytesUsed)
	}
	n := int64(im.sb.inodes) * 12 // offsets and bits
	for _, t := range []*table{&im.fragments, &im.exports, &im.idTable} {
		n += 8 * int64(tableBlocks(t.count, t.size))
	}
	if im.sb.xattrTable != noTable {
		index, err := im.xattrs.get(im.xattrTables)
		if err != nil {
			return 0, err
		}
		n += 8 * int64(tableBlocks(index.ids.count, index.ids.size))
	}
	x, err := im.section()
	if err != nil {
		return 0, err
	}
	if x != nil {
		for i := range x.columns {
			n += extPageCost * int64(x.columns[i].pages())
		}
	}
	if n > ImportMemory {
		return 0, fmt.Errorf("%w: the tables of the image take %d bytes of memory to read", ErrLimit, n)
	}
	return n, nil
}

// unpacked bounds the unpacked size of a table.
func (im *Image) unpacked(r region) (int64, error) {
	total := int64(0)
	for at := r.start; at < r.end; total += metadataSize {
		next, err := im.nextMetadata(at, r.end)
		if err != nil {
			return 0, err
		}
		at = next
	}
	return total, nil
}

func (g *importer) charge(n int64) error {
	if g.left -= n; g.left < 0 {
		return fmt.Errorf("%w: the image takes more than %d bytes of memory to read", ErrLimit, ImportMemory)
	}
	return nil
}

// mark marks a number and reports whether it was marked.
func (g *importer) mark(number uint32) bool {
	word, bit := &g.seen[number/64], uint64(1)<<(number%64)
	met := *word&bit != 0
	*word |= bit
	return met
}

// list is called before a directory is listed. The directory lies in the directory listed last, or in one above it.
func (g *importer) list(n *imageNode) error {
	if err := g.begin(); err != nil {
		return err
	}
	for last := len(g.stack) - 1; last >= 0 && g.stack[last].raw.number != n.raw.parent; last-- {
		g.left += g.stack[last].cost
		g.stack[last] = nil
		g.stack = g.stack[:last]
	}
	if g.mark(n.raw.number) {
		return corrupt(n.location(), "directory inode %d has more than one name, or contains itself", n.raw.number)
	}
	if g.listings -= n.listing(); g.listings < 0 {
		return corrupt(n.location(), "directory listings overlap: they are longer than their table")
	}
	g.stack = append(g.stack, n)
	if err := g.inode(n.Inode); err != nil {
		return err
	}
	if !n.indexHolds() {
		if _, err := n.loadIndex(); err != nil {
			return err
		}
		return corrupt(n.location(), "the index of directory inode %d leads to other names than it says", n.raw.number)
	}
	return nil
}

// inode counts the bytes of an inode in its table.
func (g *importer) inode(n *Inode) error {
	size := int64(inodeSizes[n.raw.typ]) + int64(len(n.raw.target))
	if n.raw.basic() == typeFile {
		size += 4 * int64(min(n.raw.blocks(n.im.sb.blockSize), 1<<60))
	}
	size += dirIndexSize * int64(n.raw.indexes)
	if g.inodes -= size; g.inodes < 0 {
		return corrupt(n.location(), "inodes overlap: they are longer than their table")
	}
	return nil
}

// name is called for each name that is listed.
func (g *importer) name(dir *imageNode, e listed) error {
	if g.names--; g.names < 0 {
		return corrupt(dir.location(), "more names than an image of %d bytes can have", g.im.sb.bytesUsed)
	}
	cost := nameCost + int64(len(e.name))
	dir.cost += cost
	return g.charge(cost)
}

// entry checks what a name in a directory leads to. A directory is checked by list, which is called for it once.
func (g *importer) entry(dir, n *Inode, e imageName) error {
	if n.raw.basic() != e.typ {
		return corrupt(n.location(), "entry of type %d, inode of type %d", e.typ, n.raw.basic())
	}
	if n.raw.number != e.number {
		return corrupt(n.location(), "entry of inode %d, inode has number %d", e.number, n.raw.number)
	}
	if n.raw.basic() == typeDir {
		if n.raw.parent != dir.raw.number {
			return corrupt(n.location(), "directory has parent inode %d and is found in %d", n.raw.parent,
				dir.raw.number)
		}
		return nil
	}
	if n.raw.basic() == typeSymlink && (n.raw.size == 0 || slices.Contains(n.raw.target, 0)) {
		return corrupt(n.location(), "symlink target %q", n.raw.target)
	}
	if n.raw.basic() == typeSymlink && n.raw.size >= pathMax {
		return corrupt(n.location(), "symlink target of %d bytes", n.raw.size)
	}
	if !g.mark(n.raw.number) {
		if n.raw.nlink > 1 {
			if err := g.charge(linkCost); err != nil {
				return err
			}
			g.links[n.raw.number] = n.ref
		}
		return g.inode(n)
	}
	if n.raw.nlink < 2 {
		return corrupt(n.location(), "inode %d has link count %d and several names, or its number is there twice",
			n.raw.number, n.raw.nlink)
	}
	if g.links[n.raw.number] != n.ref {
		return corrupt(n.location(), "inode number %d is there twice", n.raw.number)
	}
	return nil
}

// read reads the attributes of an inode, and counts what is read.
func (g *importer) read(n *Inode, x *extra) ([]Xattr, error) {
	list, err := n.xattrs(x, nil)
	if err != nil {
		return nil, err
	}
	if g.xattrs -= int64(xattrBytes(list)); g.xattrs < 0 {
		return nil, corrupt(n.location(), "more bytes of attributes than an image of %d bytes can have",
			g.im.sb.bytesUsed)
	}
	if fault := xattrsFault(n.attr.Mode, list); fault != "" {
		return nil, corrupt(n.location(), "%s", fault)
	}
	if size := xattrBytes(list); size > maxImportXattrs {
		return nil, fmt.Errorf("%w: attributes of %d bytes of one inode", ErrLimit, size)
	}
	return list, g.charge(setCost)
}

// extra reads what the extension section has about an inode. Records may not overlap.
func (g *importer) extra(n *Inode) (*extra, error) {
	x, err := n.extra()
	if err != nil {
		return nil, err
	}
	if n.raw.nlink > 1 && n.raw.basic() != typeDir { // it comes once for each name
		if g.counted[n.raw.number] {
			return &x, nil
		}
		g.counted[n.raw.number] = true
	}
	size := int64(2 * len(x.extents)) // the least that it takes
	for _, a := range x.xattrs {
		size += int64(len(a.Name) + len(a.Value))
	}
	if g.extras -= size; g.extras < 0 {
		return nil, corrupt(n.location(), "extension records overlap: they are longer than their column")
	}
	return &x, nil
}

// data counts what is read of contents.
func (g *importer) data(n *Inode, list []Extent) error {
	for _, x := range list {
		if g.contents -= x.Len; g.contents < 0 {
			return corrupt(n.location(), "more contents than an image of %d bytes can have", g.im.sb.bytesUsed)
		}
	}
	return nil
}

// find returns the index of a name in the listing, which is sorted.
func (n *imageNode) find(name string) (int, bool) {
	i := sort.SearchStrings(n.names, name)
	return i, i < len(n.names) && n.names[i] == name
}
