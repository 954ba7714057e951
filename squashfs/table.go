package squashfs

import "encoding/binary"

// table is an array of entries in metadata blocks, found through an array of the blocks' offsets.
type table struct {
	name   string
	at     int64  // of the array of places
	count  uint64 // of entries
	size   int    // of an entry; a power of two, so that none crosses a block's border
	places lazy[[]byte]
}

// entry returns the bytes of one entry.
func (im *Image) entry(t *table, i uint64) ([]byte, error) {
	if i >= t.count {
		return nil, corrupt(t.at, "entry %d of the %s, which has %d", i, t.name, t.count)
	}
	places, err := t.places.get(func() (*[]byte, error) {
		// Open has checked that the array lies in the image, so its length is bounded by the image's.
		b := make([]byte, 8*tableBlocks(t.count, t.size))
		return &b, readFull(im.r, b, t.at)
	})
	if err != nil {
		return nil, err
	}
	per := uint64(metadataSize / t.size)
	place := binary.LittleEndian.Uint64((*places)[i/per*8:])
	if place > uint64(t.at) {
		return nil, corrupt(t.at+int64(i/per*8), "block of the %s at %d, after its end", t.name, place)
	}
	data, _, err := im.metadataBlock(int64(place), t.at)
	if err != nil {
		return nil, err
	}
	off := int(i%per) * t.size
	if off+t.size > len(data) {
		return nil, corrupt(int64(place), "block of the %s has %d bytes, entry %d would be at %d", t.name, len(data), i,
			off)
	}
	return data[off : off+t.size], nil
}

// id returns a uid or gid by its index. The first call unpacks the whole table, 256 KiB at most.
func (im *Image) owner(i uint16) (uint32, error) {
	ids, err := im.ids.get(func() (*[]uint32, error) {
		ids := make([]uint32, im.sb.ids)
		for i := range ids {
			b, err := im.entry(&im.idTable, uint64(i))
			if err != nil {
				return nil, err
			}
			ids[i] = binary.LittleEndian.Uint32(b)
		}
		return &ids, nil
	})
	if err != nil {
		return 0, err
	}
	if int(i) >= len(*ids) {
		return 0, corrupt(im.idTable.at, "id %d of %d", i, len(*ids))
	}
	return (*ids)[i], nil
}

// fragment returns the location of a block of tails.
func (im *Image) fragment(i uint32) (fragmentEntry, error) {
	var f fragmentEntry
	b, err := im.entry(&im.fragments, uint64(i))
	if err == nil {
		f.decode(b)
	}
	return f, err
}

// Export finds an inode by its squashfs number through the export table, as NFS servers do. Images without that table,
// such as the store form, return ErrNoExports.
func (im *Image) Export(number uint32) (Ref, error) {
	if im.exports.count == 0 {
		return 0, ErrNoExports
	}
	if number == 0 {
		return 0, corrupt(im.exports.at, "inode number 0")
	}
	b, err := im.entry(&im.exports, uint64(number)-1)
	if err != nil {
		return 0, err
	}
	return Ref(binary.LittleEndian.Uint64(b)), nil
}
