// Package zdeflate compresses as the zlib library does with the same parameters, bit for bit and for ever.
//
// Git objects, wheels, Java archives, PNG images and most gzip files were written by zlib. Stored inflated they
// compress far better, and their contents are found again in other files, provided that reading can make the very same
// bytes again. RFC 1951 leaves an encoder free in how it searches for matches and where it ends blocks, so this is an
// encoder of its own that takes every decision as zlib's does: from version 1.2.0 of zlib on they have not changed.
//
// What is reproduced: levels 1 to 9, the strategies default and filtered, windows of 512 bytes to 32 KiB, every
// memory level. What is not: level 0, other strategies, preset dictionaries, flushes in the middle of a stream, and the
// forks of zlib that search in another way (zlib-ng, those of Cloudflare and Chromium, libdeflate, gzip, zip).
//
// # The encoder
//
//	deflate.go  matches are found by chains of equal hashes of three bytes: greedily (levels 1 to 3) or lazily
//	trees.go    what was found is gathered to blocks; each gets the cheapest of stored, fixed or dynamic codes
//	stream.go   the compressor of a stream, and the wrapper of zlib (RFC 1950)
//
// zlib copies its input into a window of twice its size, which slides. The encoder here has the input in one piece and
// no window, but the window's place is followed, as it decides which positions can be matched and which blocks can be
// stored. zlib's decisions do not depend on the pieces in which it is given its input, except for one position in 32
// KiB in very rare cases; callers compare the output anyway.
//
// The output must never change: stored manifests name these parameters. TestGolden holds it to digests.
package zdeflate
