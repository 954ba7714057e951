package squashfs

import "hash/crc32"

// withSection puts an extension section behind the image: all columns are constants, but for the inode numbers.
func withSection(change func(h *extHeader), damage func(section []byte)) func(m *model) {
	return func(m *model) {
		m.patch = func(m *model, img []byte) []byte {
			h := extHeader{bytesUsed: m.sb.bytesUsed, inodes: m.sb.inodes}
			for id := range uint16(extExtraNumber) {
				h.columns = append(h.columns, extColumn{id: id, rows: uint64(m.sb.inodes), constant: int64(id)})
			}
			at := uint64(extHeaderSize + len(h.columns)*extColumnSize)
			page := make([]byte, m.sb.inodes)
			for i := range page {
				page[i] = byte(100 + i)
			}
			ino := &h.columns[extIno]
			ino.width, ino.pageRows, ino.offset = 1, extPageRows, at
			table := []byte{byte(len(page)), 0, 0, 0}
			sum := crc32.Checksum(page, castagnoli)
			table = append(table, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
			ino.tableCRC = crc32.Checksum(table, castagnoli)
			h.length = at + uint64(len(table)+len(page))
			if change != nil {
				change(&h)
			}
			section := append(append(h.encode(), table...), page...)
			if damage != nil {
				damage(section)
			}
			img = append(img, section...)
			return append(img, make([]byte, -len(img)&(padding-1))...)
		}
	}
}

var extensionScenarios = []scenario{
	{"ext-sound", withSection(nil, nil), "", true},
	{"ext-header", withSection(nil, func(b []byte) { b[41] ^= 1 }), "extension header checksum", true},
	{"ext-magic", withSection(nil, func(b []byte) { b[0] = 'x' }), "without its magic", true},
	{"ext-version", withSection(nil, func(b []byte) { b[8] = 99 }), "unknown version", true},
	{"ext-many-columns", withSection(nil, func(b []byte) { b[13] = 0xff }), "columns", true},
	{"ext-page", withSection(nil, func(b []byte) { b[len(b)-1] ^= 1 }), "extension page at", true},
	{"ext-page-table", withSection(nil, func(b []byte) { b[len(b)-17] ^= 1 }), "extension page table at", true},
	{"ext-other-image", withSection(func(h *extHeader) { h.bytesUsed-- }, nil), "another image", true},
	{"ext-too-long", withSection(func(h *extHeader) { h.length = 1 << 40 }, nil), "where", true},
	{
		"ext-column-outside", withSection(func(h *extHeader) { h.columns[extIno].offset = 1 << 40 }, nil),
		"extension column 0", true,
	},
	{"ext-many-extras", withSection(func(h *extHeader) {
		for _, id := range []uint16{extExtraNumber, extExtraOffset} {
			h.columns = append(h.columns, extColumn{id: id, rows: 1 << 62})
		}
	}, nil), "extras", true},
	{
		"ext-nanoseconds", withSection(func(h *extHeader) { h.columns[extMtimeNsec].constant = 1e9 }, nil),
		"nanoseconds",
		true,
	},
}
