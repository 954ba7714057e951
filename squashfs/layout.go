package squashfs

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// Tables returns the locations of an image's metadata by the names of [Cut.Table], so that a writer's tables can be
// compared with those of an earlier image. It knows the order of tables that [WriteStore] and [WriteShip] keep. For
// images of other tools it returns what the superblock says.
func (im *Image) Tables() (map[string]Extent, error) {
	sb := &im.sb
	starts := map[string]int64{"inodes": im.inodes.start, "directories": im.dirs.start}
	for name, t := range map[string]struct{ at, entries uint64 }{
		"fragments": {sb.fragTable, uint64(sb.fragments)},
		"export":    {sb.exportTable, uint64(sb.inodes)},
		"ids":       {sb.idTable, uint64(sb.ids)},
	} {
		if t.at == noTable || t.entries == 0 {
			continue
		}
		// The array of offsets begins with the offset of the first block, where the table begins.
		var first [8]byte
		if err := readFull(im.r, first[:], int64(t.at)); err != nil {
			return nil, err
		}
		if start := binary.LittleEndian.Uint64(first[:]); start <= t.at {
			starts[name] = int64(start)
		}
	}
	if sb.xattrTable != noTable {
		starts["xattrs"] = int64(sb.idTable + 8*tableBlocks(uint64(sb.ids), idEntrySize))
	}
	end := int64(sb.bytesUsed)
	x, err := im.section()
	if err != nil {
		return nil, err
	}
	if x != nil {
		starts["extension"] = x.base
		for i := range x.columns {
			if c := &x.columns[i]; c.width > 0 && c.rows > 0 {
				starts[extColumnNames[i]] = x.base + int64(c.offset)
			}
		}
		end = x.base + int64(x.length)
	}
	return between(starts, end), nil
}

// between turns the starts of adjacent areas into areas.
func between(starts map[string]int64, end int64) map[string]Extent {
	names := slices.SortedFunc(maps.Keys(starts), func(a, b string) int { return cmp.Compare(starts[a], starts[b]) })
	areas := make(map[string]Extent, len(names))
	for i, name := range names {
		next := end
		if i+1 < len(names) {
			next = starts[names[i+1]]
		}
		areas[name] = Extent{Off: starts[name], Len: next - starts[name]}
	}
	return areas
}
