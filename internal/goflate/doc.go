// Package goflate compresses as compress/zlib of Go's standard library did when this copy was frozen,
// bit for bit and for ever.
//
// Go's linker compresses DWARF sections with compress/zlib at level 1. Stored inflated they
// compress far better, between versions of a binary above all, provided that reading can make the very
// same bytes again. The standard library promises no such thing from one release to the next, so the
// compressor is kept here: deflate.go, deflatefast.go, huffman_bit_writer.go, huffman_code.go and token.go
// are those of compress/flate of Go 1.26.8, unchanged but for the package clause, calls of sort, a counter of
// work that decides nothing, and the span of what is written, which is all unless a Piece is made (licence: LICENSE).
// They must never change: stored images name this codec.
package goflate
