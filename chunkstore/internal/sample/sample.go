package sample

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/goflate"
)

// Noise gives n bytes that do not compress.
func Noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

// Prose makes text that compresses like source code, n bytes of it.
func Prose(seed int64, n int) []byte {
	r := rand.New(rand.NewSource(seed))
	words := make([]string, 400)
	for i := range words {
		b := make([]byte, 2+r.Intn(9))
		for j := range b {
			b[j] = byte('a' + r.Intn(26))
		}
		words[i] = string(b)
	}
	var out bytes.Buffer
	for out.Len() < n {
		fmt.Fprintf(&out, "%s(%s, %d)\n", words[r.Intn(len(words))], words[r.Intn(20)], r.Intn(1000))
	}
	return out.Bytes()[:n]
}

// Edited gives data with some lines replaced.
func Edited(seed int64, data []byte, edits int) []byte {
	r := rand.New(rand.NewSource(seed))
	out := bytes.Clone(data)
	for range edits {
		at := r.Intn(len(out))
		out = append(out[:at:at], append([]byte(fmt.Sprintf("edit %d\n", r.Int())), out[at:]...)...)
	}
	return out
}

// ELF makes a 64-bit little-endian ELF file of the given sections, laid out as Go's linker does:
// section table first.
func ELF(t testing.TB, sections ...Section) []byte {
	t.Helper()
	const table = 400
	off := uint64(8<<10 + 1000) // behind what is looked at to find sections
	head := make([]byte, off)
	copy(head, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint64(head[40:], table)
	le.PutUint16(head[58:], 64)
	le.PutUint16(head[60:], uint16(len(sections)))
	body := head
	for i, s := range sections {
		h := body[table+64*i:]
		le.PutUint32(h[4:], 1)
		le.PutUint64(h[8:], s.Flags)
		le.PutUint64(h[24:], uint64(len(body)))
		le.PutUint64(h[32:], uint64(len(s.Data)))
		body = append(body, s.Data...)
	}
	return append(body, Noise(77, 200_000)...)
}

// Section is a section of an ELF file; its type is SHT_PROGBITS.
type Section struct {
	Flags uint64
	Data  []byte
}

// Compressed gives a section's data: a zlib stream behind the header that says how long its contents are.
func Compressed(size int, stream []byte) []byte {
	h := make([]byte, 24, 24+len(stream))
	binary.LittleEndian.PutUint32(h, 1)
	binary.LittleEndian.PutUint64(h[8:], uint64(size))
	binary.LittleEndian.PutUint64(h[16:], 1)
	return append(h, stream...)
}

// GoZlib compresses data as Go's linker does.
func GoZlib(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, goflate.Zlib(&b, data))
	return b.Bytes()
}
