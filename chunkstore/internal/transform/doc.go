// Package transform finds stretches of a file that compress far better as other bytes, from which they can be made
// again exactly, and makes them again.
//
// There is one codec: a zlib stream as Go's linker writes it into the debug sections of ELF files is stored inflated.
// A Splitter takes a file and gives its bytes as they are, or for such a stretch the bytes to be stored instead.
// Codec.Undo makes the stretch again. What cannot be made again to the last bit is left as it is.
package transform
