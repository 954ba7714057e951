package gitpatch

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
)

// binaryPatch writes the contents of both sides, so that the patch can be applied and taken back.
//
//	GIT binary patch
//	literal SIZE                 of the new contents, or:
//	delta SIZE                   of the delta that makes them of the old ones
//	zcmV…                        lines of a length (A-Z: 1 to 26, a-z: 27 to 52 bytes) and base85
//	                             an empty line
//	literal SIZE                 as above, from the new contents to the old ones
//	…
func binaryPatch(b *bytes.Buffer, old, new File) {
	b.WriteString("GIT binary patch\n")
	direction(b, old.Data, new.Data)
	direction(b, new.Data, old.Data)
}

// direction writes what makes one side of the other.
func direction(b *bytes.Buffer, from, to []byte) {
	kind, size, payload := "literal", len(to), deflate(to)
	if len(from) > 0 && len(to) > 0 {
		if d := delta(from, to, len(payload)); d != nil {
			if p := deflate(d); len(p) < len(payload) {
				kind, size, payload = "delta", len(d), p
			}
		}
	}
	fmt.Fprintf(b, "%s %d\n", kind, size)
	base85(b, payload)
	b.WriteByte('\n')
}

// deflate compresses as git does.
func deflate(data []byte) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, _ = z.Write(data) // a buffer takes everything
	_ = z.Close()
	return b.Bytes()
}

// alphabet are the digits of git's base85 (base85.c).
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// base85 writes bytes in lines of 52.
func base85(b *bytes.Buffer, data []byte) {
	for len(data) > 0 {
		line := data[:min(len(data), 52)]
		data = data[len(line):]
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
}
