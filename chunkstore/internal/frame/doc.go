// Package frame compresses bytes into zstd frames (RFC 8878), with or without a dictionary, and back. With cgo it uses
// libzstd, without it klauspost/compress; each reads what the other has written.
//
// A frame is kept without its magic number, which is the same in all. It has no content checksum and no dictionary id:
// what holds it has a checksum, and says which bytes are the dictionary.
package frame
