package squashfs

import (
	"encoding/binary"
	"slices"
)

// model is an image as data: scenarios change it before it is laid out, while references are resolved, or when it is
// bytes. All metadata is stored uncompressed, so that places can be told by arithmetic.
type model struct {
	sb     superblock // block size, compressor and flags; the rest is set by build
	data   []byte     // of the data area, which begins behind the superblock
	inodes []modelInode
	frags  []fragmentEntry
	ids    []uint32
	pairs  []byte    // of xattrs
	sets   []xattrID // refs count from the pairs' first block
	export bool

	// placed may change what refers to other structures, when their places are known.
	placed func(m *model)
	// meta may replace the stored form of the inode table.
	meta func(table []byte) []byte
	// patch may change the bytes; m.sb has the offsets.
	patch func(m *model, img []byte) []byte

	refs []Ref // of the inodes, set by build
}

type modelInode struct {
	rawInode
	words   []uint32
	index   []dirIndex
	entries []modelEntry
	// listing replaces what entries would build.
	listing []byte
}

type modelEntry struct {
	name  string
	inode int // index in model.inodes
	ref   Ref // instead of the inode's, if not 0
	typ   uint16
	delta int16 // added to the right inode number
}

// stored is metadata as uncompressed blocks.
func stored(table []byte) []byte {
	var b []byte
	for part := range slices.Chunk(table, metadataSize) {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(part))|metadataUncompressed)
		b = append(b, part...)
	}
	return b
}

// refAt is where byte p of a stored table is.
func refAt(p int) Ref { return makeRef(uint64(p/metadataSize*(metadataSize+2)), p%metadataSize) }

// list encodes a directory's entries with a header for each, as simple as the format allows.
func (m *model) list(entries []modelEntry) []byte {
	var b []byte
	for _, e := range entries {
		ref, to := e.ref, &m.inodes[e.inode]
		if ref == 0 {
			ref = m.refs[e.inode]
		}
		typ := e.typ
		if typ == 0 {
			typ = to.basic()
		}
		b = dirHeader{count: 1, start: uint32(ref.block()), number: to.number}.append(b)
		b = dirEntry{offset: uint16(ref.offset()), delta: e.delta, typ: typ, name: e.name}.append(b)
	}
	return b
}

// encodeInodes returns the inode table and sets refs.
func (m *model) encodeInodes() []byte {
	var table []byte
	m.refs = m.refs[:0]
	for i := range m.inodes {
		n := &m.inodes[i]
		m.refs = append(m.refs, refAt(len(table)))
		table = n.append(table)
		for _, w := range n.words {
			table = binary.LittleEndian.AppendUint32(table, w)
		}
		for _, x := range n.index {
			table = x.append(table)
		}
	}
	return table
}

// build lays the image out.
func (m *model) build() []byte {
	m.encodeInodes() // sizes do not depend on the values set below
	var dirs []byte
	for i := range m.inodes {
		n := &m.inodes[i]
		if n.basic() != typeDir {
			continue
		}
		at := refAt(len(dirs))
		n.start, n.offset = at.block(), uint32(at.offset())
		if n.listing == nil {
			n.listing = m.list(n.entries)
		}
		n.size = uint64(len(n.listing)) + dirSizeBias
		dirs = append(dirs, n.listing...)
	}
	if m.placed != nil {
		m.placed(m)
	}
	le := binary.LittleEndian
	img := slices.Concat(make([]byte, superblockSize), m.data)
	sb := &m.sb
	sb.inodes, sb.fragments, sb.ids, sb.root = uint32(len(m.inodes)), uint32(len(m.frags)), uint16(len(m.ids)),
		m.refs[0]
	sb.inodeTable = uint64(len(img))
	inodes := stored(m.encodeInodes())
	if m.meta != nil {
		inodes = m.meta(inodes)
	}
	img = append(img, inodes...)
	sb.dirTable = uint64(len(img))
	img = append(img, stored(dirs)...)
	table := func(entries []byte) uint64 {
		first := uint64(len(img))
		img = append(img, stored(entries)...)
		at := uint64(len(img))
		for p := 0; p < len(entries); p += metadataSize {
			img = le.AppendUint64(img, first+refAt(p).block())
		}
		return at
	}
	sb.fragTable, sb.exportTable, sb.xattrTable = noTable, noTable, noTable
	if len(m.frags) > 0 {
		var b []byte
		for _, f := range m.frags {
			b = f.append(b)
		}
		sb.fragTable = table(b)
	}
	if m.export {
		b := make([]byte, len(m.inodes)*exportEntrySize)
		for i, n := range m.inodes {
			if at := int(n.number-1) * exportEntrySize; at >= 0 && at < len(b) {
				le.PutUint64(b[at:], uint64(m.refs[i]))
			}
		}
		sb.exportTable = table(b)
	}
	var ids []byte
	for _, id := range m.ids {
		ids = le.AppendUint32(ids, id)
	}
	sb.idTable = table(ids)
	if m.sets != nil {
		start := uint64(len(img))
		img = append(img, stored(m.pairs)...)
		first := uint64(len(img))
		var b []byte
		for _, s := range m.sets {
			b = s.append(b)
		}
		img = append(img, stored(b)...)
		sb.xattrTable = uint64(len(img))
		img = xattrTable{start: start, ids: uint32(len(m.sets))}.append(img)
		img = le.AppendUint64(img, first)
	}
	sb.bytesUsed = uint64(len(img))
	img = append(img, make([]byte, -len(img)&(padding-1))...)
	copy(img, sb.encode())
	if m.patch != nil {
		img = m.patch(m, img)
	}
	return img
}

// Indices of the sound model's inodes.
const (
	mRoot = iota
	mDir
	mFile
	mTail
	mLink
	mDev
	mFifo
	mDeep
	mBig
)

// soundModel is what scenarios break: a root with one of each kind, hard links, a fragment, xattrs and
// exports.
func soundModel() *model {
	const bs = minBlockSize
	m := &model{
		sb: superblock{
			mtime: 7, blockSize: bs, compressor: compressorGzip,
			flags: flagExportable | flagUncompressedInodes | flagUncompressedData,
		},
		ids:    []uint32{0, 1000},
		export: true,
	}
	for i := range 2*bs + 100 + 50 {
		m.data = append(m.data, byte(i*i>>3))
	}
	m.frags = []fragmentEntry{{start: superblockSize + 2*bs + 100, size: 50 | dataUncompressed}}
	m.pairs = appendXattrValue(appendXattrKey(nil, 0, "short"), []byte("value"))
	far := len(m.pairs)
	m.pairs = appendXattrValue(appendXattrKey(m.pairs, 1, "there"), []byte("far away"))
	at := uint64(far + xattrKeySize + len("there"))
	m.sets = []xattrID{
		{ref: 0, count: 2, size: 40},
		{ref: refAt(len(m.pairs)), count: 1, size: 20},
	}
	m.pairs = appendXattrKey(m.pairs, 2|xattrOutOfLine, "remote")
	m.pairs = appendXattrValue(m.pairs, binary.LittleEndian.AppendUint64(nil, at))
	m.inodes = []modelInode{
		mRoot: {rawInode: rawInode{typ: typeDir, nlink: 5}},
		mDir:  {rawInode: rawInode{typ: typeDir + extendedType, nlink: 3, xattr: 0}},
		mFile: {
			rawInode: rawInode{
				typ: typeFile + extendedType, nlink: 2, start: superblockSize, size: 3*bs + 100,
				sparse: bs, fragment: noFragment, xattr: 1,
			},
			words: []uint32{bs | dataUncompressed, 0, bs | dataUncompressed, 100 | dataUncompressed},
		},
		mTail: {rawInode: rawInode{typ: typeFile, nlink: 1, size: 30, fragment: 0, offset: 20}},
		mLink: {rawInode: rawInode{typ: typeSymlink, nlink: 1, size: 6, target: []byte("target")}},
		mDev:  {rawInode: rawInode{typ: typeCharDev, nlink: 1, rdev: 0x103}},
		mFifo: {rawInode: rawInode{typ: typeFifo + extendedType, nlink: 1, xattr: noXattr}},
		mDeep: {rawInode: rawInode{typ: typeDir, nlink: 2}},
		mBig:  {rawInode: rawInode{typ: typeDir + extendedType, nlink: 2, xattr: noXattr}},
	}
	m.inodes[mRoot].entries = []modelEntry{
		{name: "big", inode: mBig},
		{name: "dev", inode: mDev},
		{name: "dir", inode: mDir},
		{name: "fifo", inode: mFifo},
		{name: "file", inode: mFile},
		{name: "link", inode: mLink},
	}
	m.inodes[mDir].entries = []modelEntry{
		{name: "deep", inode: mDeep},
		{name: "hard", inode: mFile},
		{name: "tail", inode: mTail},
	}
	for i := range m.inodes {
		n := &m.inodes[i]
		n.mode, n.mtime, n.number, n.parent = 0o755, 1000, uint32(i+1), 1
	}
	m.inodes[mRoot].parent = uint32(len(m.inodes) + 1)
	m.inodes[mDeep].parent = mDir + 1
	m.inodes[mBig].uid = 1
	m.inodes[mBig].entries = []modelEntry{{name: bigName(0), inode: mFifo}}
	m.inodes[mFifo].nlink = 2
	return m
}

// grow gives the big directory a listing of two metadata blocks and an index.
func (m *model) grow() {
	big := &m.inodes[mBig]
	for i := range 399 {
		big.entries = append(big.entries, modelEntry{name: bigName(i + 1), inode: mFifo})
	}
	m.inodes[mFifo].nlink += 399
	big.index = []dirIndex{{name: bigName(100)}, {name: bigName(300)}}
	big.indexes = 2
	m.placed = (*model).placeIndex
}

func bigName(i int) string {
	return "entry-" + string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), '0' + byte(i%10)})
}

// bigEntry is the length of one of the big directory's entries with its header.
const bigEntry = dirHeaderSize + dirEntrySize + 9

// placeIndex makes the index of the big directory point at what it names.
func (m *model) placeIndex() {
	big := &m.inodes[mBig]
	for i := range big.index {
		x := &big.index[i]
		for k, e := range big.entries {
			if e.name == x.name {
				x.index = uint32(k * bigEntry)
			}
		}
		p := int(big.start)/(metadataSize+2)*metadataSize + int(big.offset) + int(x.index)
		x.start = uint32(refAt(p).block())
	}
}
