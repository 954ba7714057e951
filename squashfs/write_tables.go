package squashfs

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// tables is the second pass: from the spooled inodes it builds the tables, each in a spool.
type tables struct {
	w       *writer
	inodes  *metaWriter
	dirs    *metaWriter
	ext     *extWriter // nil if there is none
	root    Ref
	open    []located      // inodes that no directory names yet, by ascending number
	links   map[uint32]Ref // inodes with several names, by number
	export  *metaWriter    // references by inode number; nil if there is no such table
	parents []uint32       // still to come, one for each directory
	linked  []hardlink     // still to come
	listing dirListing
	refs    []Ref // scratch
	raw     []byte
}

// located is an inode in the table.
type located struct {
	number uint32
	ref    Ref
}

func (w *writer) tables(ctx context.Context, opts tableOptions) (*tables, error) {
	t := &tables{
		w: w, inodes: newMetaWriter(w.spools.spool(), w.compressor),
		dirs:  newMetaWriter(w.spools.spool(), w.compressor),
		links: map[uint32]Ref{}, parents: w.parents, linked: w.linked,
	}
	if opts.export {
		t.export = newMetaWriter(w.spools.spool(), w.compressor)
	}
	if opts.extension {
		t.ext = newExtWriter(w, opts.compressExtension)
	}
	in, err := w.records.reader()
	if err != nil {
		return nil, err
	}
	records := spoolReader{r: bufio.NewReaderSize(in, spoolChunk)}
	var r spooledInode
	for number := uint32(1); number <= w.inodes; number++ {
		if number%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := records.next(&r); err != nil {
			return nil, err
		}
		if err := t.inode(number, &r); err != nil {
			return nil, err
		}
		if err := t.fits(); err != nil {
			return nil, err
		}
		if t.ext != nil {
			if err := t.ext.add(number, &r); err != nil {
				return nil, err
			}
		}
	}
	if err := t.inodes.flush(); err != nil {
		return nil, err
	}
	if err := t.dirs.flush(); err != nil {
		return nil, err
	}
	return t, t.fits()
}

// fits checks that references can reach everything. A small image may have files with long lists of holes, so it is
// called before the next inode takes more of the disk.
func (t *tables) fits() error {
	if t.inodes.out.size > math.MaxUint32 || t.dirs.out.size > math.MaxUint32 {
		return fmt.Errorf("%w: metadata of %d and %d bytes", ErrLimit, t.inodes.out.size, t.dirs.out.size)
	}
	return nil
}

// inode appends one inode to the table.
func (t *tables) inode(number uint32, r *spooledInode) error {
	n := rawInode{
		typ: basicType(r.attr.Mode), mode: uint16(r.attr.Mode & 0o7777), uid: r.uid, gid: r.gid,
		mtime: clampTime(r.attr.Mtime), number: number, nlink: 1,
		fragment: noFragment, xattr: r.xattr, target: []byte(r.target),
	}
	if len(t.linked) > 0 && t.linked[0].number == number {
		if n.nlink = t.linked[0].names; n.nlink > 1 {
			t.links[number] = t.inodes.tell()
		}
		t.linked = t.linked[1:]
	}
	extended := r.xattr != noXattr
	switch n.typ {
	case typeDir:
		if err := t.directory(&n, r); err != nil {
			return err
		}
		extended = extended || n.size > math.MaxUint16 || len(t.listing.index) > 0
	case typeFile:
		n.size, n.start, n.sparse = uint64(r.attr.Size), r.layout.start, r.layout.sparse
		n.fragment, n.offset = r.layout.fragment, r.layout.offset
		extended = extended || n.nlink > 1 || n.sparse > 0 || n.size > math.MaxUint32 || n.start > math.MaxUint32
	case typeBlockDev, typeCharDev:
		n.rdev, _ = encodeDev(r.attr.Rdev) // the walk has checked it
	}
	if extended {
		n.typ += extendedType
	}
	if err := t.place(number); err != nil {
		return err
	}
	t.raw = n.append(t.raw[:0])
	if n.basic() == typeDir {
		for _, x := range t.listing.index {
			t.raw = x.append(t.raw)
		}
	}
	if _, err := t.inodes.Write(t.raw); err != nil {
		return err
	}
	if r.layout != nil {
		return t.blockList(r.layout.runs)
	}
	return nil
}

// place notes where the inode that is written next begins.
func (t *tables) place(number uint32) error {
	t.root = t.inodes.tell() // it comes last
	t.open = append(t.open, located{number, t.root})
	if t.export == nil {
		return nil
	}
	_, err := t.export.Write(binary.LittleEndian.AppendUint64(nil, uint64(t.root)))
	return err
}

// references returns those of a directory's entries, which are in order of names. The inodes that are numbered for this
// directory are the last ones in open, by ascending number as their names are; all others have several names. So what
// is held grows with the directories above, not with the tree.
func (t *tables) references(children []child) ([]Ref, error) {
	t.refs = slices.Grow(t.refs[:0], len(children))[:len(children)]
	for i, c := range slices.Backward(children) {
		if last := len(t.open) - 1; last >= 0 && t.open[last].number == c.number {
			t.refs[i] = t.open[last].ref
			t.open = t.open[:last]
			continue
		}
		ref, ok := t.links[c.number]
		if !ok {
			return nil, fmt.Errorf("%q has inode %d, which is not in its directory", c.name, c.number)
		}
		t.refs[i] = ref
	}
	return t.refs, nil
}

// blockList writes the entries behind a file's inode.
func (t *tables) blockList(runs []blockRun) error {
	for _, run := range runs {
		var entry [4]byte
		entry[0], entry[1], entry[2], entry[3] = byte(run.block), byte(run.block>>8), byte(run.block>>16),
			byte(run.block>>24)
		t.raw = t.raw[:0]
		for left := run.count; left > 0; {
			n := min(left, metadataSize/4)
			for uint64(len(t.raw)) < n*4 {
				t.raw = append(t.raw, entry[:]...)
			}
			if _, err := t.inodes.Write(t.raw[:n*4]); err != nil {
				return err
			}
			left -= n
		}
	}
	return nil
}

// directory appends a directory's listing to its table.
func (t *tables) directory(n *rawInode, r *spooledInode) error {
	at := t.dirs.tell()
	n.start, n.offset = at.block(), uint32(at.offset())
	n.nlink = 2 + r.subdirs
	n.parent = t.parents[0]
	if n.parent == 0 {
		n.parent = t.w.inodes + 1 // the root's, as other tools write it
	}
	t.parents = t.parents[1:]
	refs, err := t.references(r.children)
	if err != nil {
		return err
	}
	if err := t.listing.build(r.children, refs, t.dirs); err != nil {
		return err
	}
	n.size = uint64(t.listing.size) + dirSizeBias
	n.indexes = uint16(len(t.listing.index))
	return nil
}
