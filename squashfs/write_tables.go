package squashfs

import (
	"bufio"
	"context"
	"fmt"
	"math"
)

// tables is the second pass: from the spooled inodes it builds the tables, each in a spool.
type tables struct {
	w       *writer
	inodes  *metaWriter
	dirs    *metaWriter
	ext     *extWriter // nil if there is none
	refs    []Ref      // by inode number - 1
	parents []uint32   // still to come, one for each directory
	linked  []hardlink // still to come
	listing dirListing
	raw     []byte
}

func (w *writer) tables(ctx context.Context, opts tableOptions) (*tables, error) {
	t := &tables{
		w: w, inodes: newMetaWriter(w.spools.spool(), w.compressor),
		dirs: newMetaWriter(w.spools.spool(), w.compressor),
		refs: make([]Ref, 0, w.inodes), parents: w.parents, linked: w.linked,
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
		n.nlink = t.linked[0].names
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
	t.refs = append(t.refs, t.inodes.tell())
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
	if err := t.listing.build(r.children, t.refs, t.dirs); err != nil {
		return err
	}
	n.size = uint64(t.listing.size) + dirSizeBias
	n.indexes = uint16(len(t.listing.index))
	return nil
}
