package gitpatch

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's name of contents, not a protection
	"fmt"
)

// oid is git's name of a file's contents; all zeros for none.
func oid(f File) string {
	if f.Mode == 0 {
		return fmt.Sprintf("%040d", 0)
	}
	h := sha1.New() //nolint:gosec // as above
	fmt.Fprintf(h, "blob %d\x00", len(f.Data))
	h.Write(f.Data)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// similarity is how much of the old contents the new ones have, in percent, as git counts it (diffcore-delta.c): by
// lines, of which long ones are cut.
func similarity(old, new []byte) int {
	if bytes.Equal(old, new) {
		return 100
	}
	if len(new) == 0 {
		return 0
	}
	src, dst := pieces(old), pieces(new)
	copied := 0
	for h, n := range src {
		copied += min(n, dst[h])
	}
	const most = 60000 // git's MAX_SCORE, for the same rounding
	return copied * most / max(len(old), len(new)) * 100 / most
}

// pieces counts bytes by the hash of the line, or the 64 bytes of one, that they are in.
func pieces(data []byte) map[uint32]int {
	count := map[uint32]int{}
	text := bytes.IndexByte(data[:min(len(data), 8000)], 0) < 0
	var a, b uint32
	n := 0
	for i, c := range data {
		if text && c == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			continue
		}
		a, b = a<<7^b>>25, b<<7^a>>25
		a += uint32(c)
		if n++; n < 64 && c != '\n' {
			continue
		}
		count[(a+b*0x61)%107927] += n
		a, b, n = 0, 0, 0
	}
	if n > 0 {
		count[(a+b*0x61)%107927] += n
	}
	return count
}
