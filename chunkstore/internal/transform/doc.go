// Package transform finds stretches of a file that compress far better as other bytes, from which they can be made
// again exactly, and makes them again. The other bytes are what deflate streams hold, which besides may be stored
// already, as a file.
//
// # What is looked into
//
//	debug sections of ELF files as Go's linker writes them   codec GoZlib
//	loose objects of git                                     a codec for each type and level
//	packs of git                                             codec Recipe, as the following
//	gzip files, zip files
//	PNG images, if the rows compress better
//
// A file is told by its first bytes, not by its name.
//
// A Splitter takes a file and gives its bytes as they are, or for such a stretch, a run, the bytes to be stored instead.
// Codec.Undo makes the run again. A long stream is a run of its own, of codec Deflate, and Pieces makes any part of it
// from what it holds there and up to 256 KiB before. What cannot be made again to the last bit is left as it is: a
// stream is inflated and deflated with the parameters that its header makes likely, and compared.
//
// # Bounds
//
// Whatever a file claims, at most maxHeld bytes of it are held back, a stream's contents are at most maxStream bytes
// (MaxInflated in ELF files) and 64 times as long as the stream, and a stream that takes unusual work to deflate is
// left alone, as is the rest of a file whose streams have more than maxContents. Reading any byte of a run makes the
// whole run or piece, so runs of several streams have about maxGroup bytes of contents, and pieces about pieceSize. A
// long stream that cannot be divided is left alone if it takes more than a few times the work of a piece.
package transform
