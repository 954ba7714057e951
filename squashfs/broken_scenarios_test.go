package squashfs

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/klauspost/compress/zlib"
)

// scenario is one way to break the sound model.
type scenario struct {
	name string
	make func(m *model)
	rule string // part of a violation that Check must report; "" if the image stays sound
	// readable: everything can still be read, because the reader does not look at the damaged part.
	readable bool
}

// entriesOf is short for the entries of one of the model's directories.
func (m *model) entriesOf(i int) *[]modelEntry { return &m.inodes[i].entries }

// patched sets bytes of the finished image.
func patched(at func(m *model) uint64, b ...byte) func(m *model) {
	return func(m *model) {
		m.patch = func(m *model, img []byte) []byte {
			copy(img[at(m):], b)
			return img
		}
	}
}

// field is patched for a place in the superblock.
func field(off uint64, b ...byte) func(m *model) {
	return patched(func(*model) uint64 { return off }, b...)
}

// placed changes what only exists once places are known.
func placed(change func(m *model)) func(m *model) {
	return func(m *model) { m.placed = change }
}

// indexed changes the index of a grown directory.
func indexed(change func(m *model)) func(m *model) {
	return func(m *model) {
		m.grow()
		m.placed = func(m *model) {
			m.placeIndex()
			change(m)
		}
	}
}

// bomb is n zeros as a zlib stream.
func bomb(n int) []byte {
	var b bytes.Buffer
	z, _ := zlib.NewWriterLevel(&b, 9) // the level is valid
	_, _ = z.Write(make([]byte, n))    // to memory
	_ = z.Close()
	return b.Bytes()
}

// asBlock replaces the first data block of the file by stored bytes, said to be compressed.
func (m *model) asBlock(b []byte) {
	n := &m.inodes[mFile]
	n.start, n.words[0] = superblockSize+uint64(len(m.data)), uint32(len(b))
	n.size, n.words = minBlockSize, n.words[:1]
	m.data = append(m.data, b...)
}

// asInodes makes the inode table one block of stored bytes, said to be compressed.
func (m *model) asInodes(b []byte) {
	m.meta = func([]byte) []byte {
		return append(binary.LittleEndian.AppendUint16(nil, uint16(len(b))), b...)
	}
}

func truncated(n int) func(m *model) {
	return func(m *model) { m.patch = func(_ *model, img []byte) []byte { return img[:n] } }
}

var superblockScenarios = []scenario{
	{"sb-truncated", truncated(50), "hold no superblock", false},
	{"sb-empty", truncated(0), "hold no superblock", false},
	{"sb-magic", field(0, 'x'), "is not squashfs", false},
	{"sb-version", field(28, 3), "version 3.0", false},
	{"sb-block-size", field(12, 0, 0, 0, 0), "block size 0", false},
	{"sb-block-size-huge", field(12, 0, 0, 0, 0x40), "block size", false},
	{"sb-block-log", field(22, 13), "logarithm", false},
	{"sb-compressor", field(20, 9), "compressor 9", false},
	{"sb-truncated-image", truncated(3000), "in an image of 3000", false},
	{"sb-bytes-used-huge", field(40, 0, 0, 0, 0, 0, 0, 0, 0xff), "in an image of", false},
	{"sb-no-inodes", field(4, 0, 0, 0, 0), "no inodes", false},
	{"sb-many-inodes", field(4, 0xff, 0xff, 0xff, 0xff), "export table", false},
	{"sb-more-inodes", field(4, 10), "9 inodes in the inode table, superblock says 10", true},
	{"sb-no-ids", field(26, 0, 0), "no ids", false},
	{"sb-many-ids", field(26, 0xff, 0xff), "id table", false},
	{"sb-many-fragments", field(16, 0xff, 0xff, 0xff, 0xff), "fragment table", false},
	{"sb-fragments-without-table", field(80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "without a table", false},
	{"sb-inode-table-outside", field(64, 0, 0, 0, 0, 0, 1), "inode table", false},
	{"sb-inode-table-in-superblock", field(64, 95, 0, 0, 0, 0, 0, 0, 0), "inode table", false},
	{"sb-id-table-missing", field(48, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), "id table", false},
	{"sb-tables-swapped", func(m *model) {
		m.patch = func(m *model, img []byte) []byte {
			sb := m.sb
			sb.dirTable, sb.inodeTable = sb.inodeTable, sb.dirTable
			copy(img, sb.encode())
			return img
		}
	}, "inode table", false},
	{"sb-root-outside", field(32, 0, 0, 0, 0xff, 0xff), "is no inode", false},
	{"sb-root-is-file", func(m *model) {
		m.patch = func(m *model, img []byte) []byte {
			m.sb.root = m.refs[mFile]
			copy(img, m.sb.encode())
			return img
		}
	}, "root is no directory", true},
	{"sb-root-inside-inode", field(32, 1), "is no inode", false},
	{"sb-options-missing", func(m *model) { m.sb.flags |= flagCompressorOptions }, "metadata block of 0 bytes", true},
}

var metadataScenarios = []scenario{
	{
		"meta-no-length", patched(func(m *model) uint64 { return m.sb.inodeTable }, 0, 0x80),
		"metadata block of 0 bytes",
		false,
	},
	{
		"meta-too-long", patched(func(m *model) uint64 { return m.sb.inodeTable }, 1, 0xa0),
		"metadata block of 8193 bytes", false,
	},
	{
		"meta-leaves-table", patched(func(m *model) uint64 { return m.sb.inodeTable }, 0xff, 0x9f),
		"metadata block of 8191 bytes", false,
	},
	{"meta-short", patched(func(m *model) uint64 { return m.sb.inodeTable }, 40, 0x80), "", false},
	{"meta-garbage", func(m *model) { m.asInodes([]byte("this is no zlib stream")) }, "cannot unpack", false},
	{"meta-bomb", func(m *model) { m.asInodes(bomb(1 << 20)) }, "cannot unpack", false},
	{"meta-nothing", func(m *model) { m.asInodes(bomb(0)) }, "unpacks to nothing", false},
	{"meta-cut-stream", func(m *model) { b := bomb(500); m.asInodes(b[:len(b)-3]) }, "cannot unpack", false},
	{"meta-zero-inodes", func(m *model) { m.asInodes(bomb(8192)) }, "inode type 0", false},
	{"ids-outside", patched(func(m *model) uint64 { return m.sb.idTable }, 0xff, 0xff, 0xff, 0xff), "id table", false},
	{"ids-short", patched(func(m *model) uint64 { return m.sb.idTable - 10 }, 4, 0x80), "would be at 4", false},
	{
		"fragment-table-outside", patched(func(m *model) uint64 { return m.sb.fragTable + 7 }, 0xff), "fragment table",
		false,
	},
	{
		"export-wrong", patched(func(m *model) uint64 { return m.sb.exportTable - 72 }, 1),
		"export table has 0x1 for inode 1", true,
	},
	{"export-outside", patched(func(m *model) uint64 { return m.sb.exportTable + 6 }, 1), "export table", true},
}

var inodeScenarios = []scenario{
	{
		"inode-type-0", patched(func(m *model) uint64 { return m.sb.inodeTable + 2 + uint64(m.refs[mDev]) }, 0),
		"inode type 0", false,
	},
	{
		"inode-type-15", patched(func(m *model) uint64 { return m.sb.inodeTable + 2 + uint64(m.refs[mDev]) }, 15),
		"inode type 15", false,
	},
	{"inode-number-0", func(m *model) { m.inodes[mDev].number = 0 }, "inode number 0", false},
	{"inode-number-huge", func(m *model) { m.inodes[mDev].number = 1 << 31 }, "inode number 2147483648", false},
	{"inode-number-twice", func(m *model) { m.inodes[mDev].number = 1 }, "is there twice", true},
	{"inode-owner", func(m *model) { m.inodes[mDev].uid = 2 }, "id 2 of 2", false},
	{"inode-group", func(m *model) { m.inodes[mDev].gid = 0xffff }, "id 65535 of 2", false},
	{"inode-nlink", func(m *model) { m.inodes[mFile].nlink = 3 }, "link count 3 and 2 names", true},
	{"inode-nlink-0", func(m *model) { m.inodes[mDir].nlink = 0 }, "link count 0", true},
	{"inode-without-name", func(m *model) { *m.entriesOf(mRoot) = (*m.entriesOf(mRoot))[:5] }, "has no name", true},
	{"symlink-long", func(m *model) {
		m.inodes[mLink].size = 1 << 20
		m.inodes[mLink].target = []byte(strings.Repeat("x", 7))
	}, "", true},
	{
		"symlink-claims-gigabytes",
		patched(func(m *model) uint64 { return m.sb.inodeTable + 2 + uint64(m.refs[mLink]) + 20 }, 0xff, 0xff, 0xff,
			0xff), "symlink target of 4294967295 bytes", false,
	},
	{"symlink-nul", func(m *model) { m.inodes[mLink].target = []byte("tar\x00et") }, "symlink target", true},
	{"symlink-empty", func(m *model) { m.inodes[mLink].target = nil }, "symlink target", true},
	{"xattr-index", func(m *model) { m.inodes[mDir].xattr = 2 }, "xattr set 2 of 2", false},
	{"xattr-without-table", func(m *model) { m.sets = nil }, "xattrs without a table", false},
	{
		"xattr-table-outside", patched(func(m *model) uint64 { return m.sb.xattrTable + 7 }, 0x10),
		"xattr table of 2 ids",
		false,
	},
	{
		"xattr-many-sets", patched(func(m *model) uint64 { return m.sb.xattrTable + 8 }, 0xff, 0xff, 0xff, 0xff),
		"xattr table of", false,
	},
	{"xattr-many-pairs", func(m *model) { m.sets[0].count = 1 << 31 }, "xattr", false},
	{"xattr-type", func(m *model) { m.pairs[0] = 9 }, "xattr of type 9", false},
	{"xattr-name-empty", func(m *model) { m.pairs[2] = 0 }, "xattr name of 0 bytes", false},
	{"xattr-value-huge", func(m *model) { m.pairs[9+3] = 0xff }, "xattr value of", false},
	{"xattr-remote-outside", func(m *model) { m.pairs[len(m.pairs)-2] = 1 }, "xattr reference", false},
	{"xattr-remote-cut", func(m *model) { m.pairs[len(m.pairs)-12] = 7 }, "reference of 7 bytes", false},
	{"xattr-remote-itself", func(m *model) { m.pairs[len(m.pairs)-8] = byte(len(m.pairs) - 8) }, "xattr", false},
	{"xattr-set-outside", func(m *model) { m.sets[1].ref = 1 << 40 }, "xattr reference", false},
}

var fileScenarios = []scenario{
	{"file-size-negative", func(m *model) { m.inodes[mFile].size = 1 << 63 }, "", false},
	{"file-size-exabytes", func(m *model) { m.inodes[mFile].size = 1 << 62 }, "", false},
	{"file-start-outside", func(m *model) { m.inodes[mFile].start = 1 << 40 }, "outside the image", false},
	{
		"file-block-too-long", func(m *model) { m.inodes[mFile].words[0] = minBlockSize + 1 },
		"data block of 4097 bytes",
		false,
	},
	{"file-block-outside", func(m *model) { m.inodes[mFile].start = 30000; m.inodes[mFile].words[0]-- }, "", false},
	{"file-block-short", func(m *model) { m.inodes[mFile].words[0]-- }, "data block of 4095 bytes, want 4096", false},
	{"file-in-metadata", func(m *model) { m.inodes[mFile].start += 51 }, "outside the data area", false},
	{"file-in-superblock", func(m *model) { m.inodes[mFile].start = 0 }, "outside the data area", false},
	{"file-garbage", func(m *model) { m.asBlock([]byte("this is no zlib stream either")) }, "cannot unpack", false},
	{"file-bomb", func(m *model) { m.asBlock(bomb(1 << 20)) }, "cannot unpack", false},
	{"file-block-unpacks-short", func(m *model) { m.asBlock(bomb(4000)) }, "unpacks to 4000 bytes, want 4096", false},
	{"file-bad-checksum", func(m *model) { b := bomb(4096); b[len(b)-1] ^= 1; m.asBlock(b) }, "cannot unpack", false},
	{"fragment-index", func(m *model) { m.inodes[mTail].fragment = 1 }, "fragment 1 of 1", false},
	{"fragment-tail-outside", func(m *model) { m.inodes[mTail].offset = minBlockSize - 29 }, "of a fragment", false},
	{"fragment-tail-beyond", func(m *model) { m.inodes[mTail].offset = 21 }, "tail of 30 bytes at 21", false},
	{"fragment-offset-huge", func(m *model) { m.inodes[mTail].offset = 1<<32 - 1 }, "of a fragment", false},
	{"fragment-outside", func(m *model) { m.frags[0].start = 1 << 50 }, "fragment 0", false},
	{"fragment-before-itself", func(m *model) { // its length is more than the image's, its place far outside
		m.sb.blockSize = maxBlockSize
		m.inodes[mFile].size, m.inodes[mFile].words = 0, nil
		m.frags[0] = fragmentEntry{start: 1 << 63, size: maxBlockSize | dataUncompressed}
	}, "fragment 0", false},
	{"fragment-empty", func(m *model) { m.frags[0].size = 0 }, "fragment 0", false},
	{"fragment-too-long", func(m *model) { m.frags[0].size = minBlockSize + 1 }, "fragment 0", false},
	{"fragment-points-at-itself", func(m *model) {
		m.patch = func(m *model, img []byte) []byte { // the entry lies before the array of places, behind a header
			at := m.sb.fragTable - fragmentEntrySize
			binary.LittleEndian.PutUint64(img[at:], at)
			binary.LittleEndian.PutUint32(img[at+8:], 16)
			return img
		}
	}, "outside the data area", false},
}

var dirScenarios = []scenario{
	{"dir-contains-itself", func(m *model) {
		*m.entriesOf(mDir) = append([]modelEntry{{name: "again", inode: mDir}}, *m.entriesOf(mDir)...)
	}, "more than one name, or contains itself", true},
	{
		"dir-contains-root", func(m *model) { (*m.entriesOf(mDeep)) = []modelEntry{{name: "root", inode: mRoot}} },
		"contains itself", true,
	},
	{"dir-twice", func(m *model) {
		*m.entriesOf(mDir) = append([]modelEntry{{name: "a", inode: mDeep}}, *m.entriesOf(mDir)...)
	}, "more than one name", true},
	{"dir-parent", func(m *model) { m.inodes[mDeep].parent = 1 }, "has parent inode 1", true},
	{"name-slash", func(m *model) { (*m.entriesOf(mDir))[1].name = "ha/d" }, "slash", false},
	{"name-nul", func(m *model) { (*m.entriesOf(mDir))[1].name = "ha\x00d" }, "slash or NUL", false},
	{"name-dot", func(m *model) { (*m.entriesOf(mDir))[0].name = "." }, "reserved name", false},
	{"name-dotdot", func(m *model) { (*m.entriesOf(mDir))[0].name = ".." }, "reserved name", false},
	{"name-256", func(m *model) { (*m.entriesOf(mDir))[1].name = strings.Repeat("h", 256) }, "name too long", false},
	{"name-claims-64k", func(m *model) {
		m.inodes[mDir].listing = append(dirHeader{count: 1, number: 1}.append(nil), 0, 0, 0, 0, 1, 0, 0xff, 0xff)
	}, "name of 65536 bytes", false},
	{"dir-unsorted", func(m *model) { e := *m.entriesOf(mDir); e[0], e[2] = e[2], e[0] }, "out of order", false},
	{"dir-name-twice", func(m *model) { (*m.entriesOf(mDir))[1].name = "deep" }, "there twice", false},
	{
		"dir-big-unsorted", func(m *model) { m.grow(); e := *m.entriesOf(mBig); e[150], e[350] = e[350], e[150] },
		"out of order", false,
	},
	{"dir-entry-nowhere", func(m *model) { (*m.entriesOf(mDir))[1].ref = 5 }, "where no inode is", false},
	{
		"dir-entry-outside", func(m *model) { (*m.entriesOf(mDir))[1].ref = makeRef(1<<30, 0) }, "where no inode is",
		false,
	},
	{
		"dir-entry-type", func(m *model) { (*m.entriesOf(mDir))[1].typ = typeDir }, "entry of type 1, inode of type 2",
		true,
	},
	{"dir-entry-type-8", func(m *model) { (*m.entriesOf(mDir))[1].typ = 8 }, "directory entry of type 8", false},
	{
		"dir-entry-number", func(m *model) { (*m.entriesOf(mDir))[1].delta = 1 },
		"entry of inode 4, inode has number 3",
		true,
	},
	{"dir-entry-number-0", func(m *model) { (*m.entriesOf(mDir))[1].delta = -3 }, "inode number 0", false},
	{
		"dir-run-of-257", func(m *model) { m.inodes[mDir].listing = dirHeader{count: 257}.append(nil) }, "257 entries",
		false,
	},
	{"dir-run-of-nothing", func(m *model) {
		m.inodes[mDir].listing = make([]byte, 0, 12)
		m.inodes[mDir].listing = append(m.inodes[mDir].listing, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0)
	}, "directory header of 0 entries", false},
	{"dir-cut", placed(func(m *model) { m.inodes[mDir].size -= 2 }), "ends inside an entry", false},
	{"dir-too-long", placed(func(m *model) { m.inodes[mDeep].size = 60000 }), "", false},
	{
		"dir-listing-outside", placed(func(m *model) { m.inodes[mDir].start = 1 << 31 }), "outside the directory table",
		false,
	},
	{"dir-listing-offset", placed(func(m *model) { m.inodes[mDir].offset = 8192 }), "listing at byte 8192", false},
	{"dir-listing-shared", placed(func(m *model) {
		m.inodes[mDir].start, m.inodes[mDir].offset, m.inodes[mDir].size = m.inodes[mRoot].start,
			m.inodes[mRoot].offset, m.inodes[mRoot].size
	}), "contains itself", true},
	{"index-block", indexed(func(m *model) { m.inodes[mBig].index[1].start = 0 }), "points at block 0", false},
	{
		"index-name", indexed(func(m *model) { m.inodes[mBig].index[1].name = "entry-301" }), "directory index says",
		false,
	},
	{"index-inside-run", indexed(func(m *model) { m.inodes[mBig].index[1].index++ }), "directory index says", false},
	{
		"index-unsorted", indexed(func(m *model) { x := m.inodes[mBig].index; x[0], x[1] = x[1], x[0] }),
		"out of order",
		false,
	},
	{
		"index-beyond", indexed(func(m *model) { m.inodes[mBig].index[1].index = 1 << 30 }), "directory index at byte",
		false,
	},
	{"index-cut", func(m *model) { m.grow(); m.inodes[mBig].indexes = 0xffff }, "", false},
	{
		"index-name-huge", indexed(func(m *model) { m.inodes[mBig].index[1].name = strings.Repeat("x", 300) }),
		"directory index name of 300 bytes", false,
	},
}
