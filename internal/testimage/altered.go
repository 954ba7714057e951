// Package testimage opens squashfs images that are in no store, and damages them for fuzz targets, so that these share
// what a corpus of theirs says.
package testimage

import (
	"bytes"
	"encoding/binary"
)

const (
	inodeTable = 64 // of the superblock: where the metadata begins
	patchSize  = 6
)

// MaxPatches is how many bytes of patches a fuzz target takes.
const MaxPatches = 64 * patchSize

// Altered changes an image: each patch is a place u32, measured from the end of the data (or from the start, for odd
// places), and a value u16, whose low byte alone counts if the place is beyond its end.
func Altered(img, patches []byte) []byte {
	img = bytes.Clone(img)
	from := int(min(binary.LittleEndian.Uint64(img[inodeTable:]), uint64(len(img)-1)))
	for ; len(patches) >= patchSize; patches = patches[patchSize:] {
		at, v := int(binary.LittleEndian.Uint32(patches)>>1), patches[4:6]
		if patches[0]&1 == 0 {
			at = from + at%(len(img)-from)
		}
		at %= len(img)
		copy(img[at:], v)
	}
	return img
}
