package gitpatch

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1" //nolint:gosec // git's name of contents, not a protection
	"encoding/binary"
	"fmt"
)

// literals writes the contents of both sides, so that the patch can be applied and taken back, under the names by which
// git knows them.
//
//	index SHA1(old)..SHA1(new)
//	GIT binary patch
//	literal SIZE                 of the new contents
//	zcmV…                        lines of a length (A-Z: 1 to 26, a-z: 27 to 52 bytes) and base85
//	                             an empty line
//	literal SIZE                 of the old contents
//	…
func literals(b *bytes.Buffer, old, new File) {
	fmt.Fprintf(b, "index %s..%s\nGIT binary patch\n", oid(old), oid(new))
	literal(b, new.Data)
	literal(b, old.Data)
}

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

// alphabet are the digits of git's base85 (base85.c).
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// literal writes contents, deflated, in lines of 52 bytes.
func literal(b *bytes.Buffer, data []byte) {
	var deflated bytes.Buffer
	z := zlib.NewWriter(&deflated)
	_, _ = z.Write(data) // a buffer takes everything
	_ = z.Close()
	fmt.Fprintf(b, "literal %d\n", len(data))
	for rest := deflated.Bytes(); len(rest) > 0; {
		line := rest[:min(len(rest), 52)]
		rest = rest[len(line):]
		length := byte('A' + len(line) - 1)
		if len(line) > 26 {
			length = byte('a' + len(line) - 27)
		}
		b.WriteByte(length)
		for len(line) > 0 {
			var word [4]byte
			line = line[copy(word[:], line):]
			n := binary.BigEndian.Uint32(word[:])
			var digits [5]byte
			for i := 4; i >= 0; i-- {
				digits[i] = alphabet[n%85]
				n /= 85
			}
			b.Write(digits[:])
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}
