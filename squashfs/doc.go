// Package squashfs reads, writes and checks squashfs 4.0 images.
//
// It knows nothing of chunks, overlays or FUSE. The format itself, byte by byte, is in docs/FORMAT.md; the structures
// are in format*.go, one comment with the layout above each.
//
// # Nouns
//
//   - image: one squashfs file system, as a file or any io.ReaderAt.
//   - superblock: its first 96 bytes, which say where everything is.
//   - inode: one file, directory, symlink, device, fifo or socket; it may have several names (hard links). Inodes are numbered
//     from 1; a [Ref] is the place of one in the inode table.
//   - block: a piece of a file's contents, all of the same size but the last; stored compressed, as it is, or,
//     if it is zeros, not at all.
//   - fragment: a block that holds several small files.
//   - metadata block: 8 KiB of a table.
//   - extension section: what squashfs has no place for, behind bytes_used where other readers do not look.
//   - store form: what the chunk store keeps: everything uncompressed, each file's data in one piece.
//   - ship form: what goes to other tools: compressed, with fragments, equal files stored once.
//
// # An image
//
//	┌────────────┬──────┬───────┬────────┬─────────────┬───────────┬────────┬─────┬────────┬───────────┬───────┐
//	│ superblock │ data │ zeros │ inodes │ directories │ fragments │ export │ ids │ xattrs │ extension │ zeros │
//	└────────────┴──────┴───────┴────────┴─────────────┴───────────┴────────┴─────┴────────┴───────────┴───────┘
//	                                                                          bytes_used ──┘     file's end ───┘
//
// Fragments, export and xattrs may be missing. bytes_used and the file are multiples of 4 KiB.
//
// # Reading
//
// [Open] reads the superblock; everything else is read when it is asked for, through a bounded cache. Images are not
// trusted: what breaks the format is an error of the class [ErrCorrupt] with its place. [Check] reports
// every broken rule.
//
// # Writing
//
// [WriteStore] and [WriteShip] take a tree as a [Source]: [DirSource], [ImageSource] or one of another package. Both work
// in two passes. The first walks the tree in post-order with names in byte order, writes contents, numbers the inodes
// and spools a record of each. The second makes the tables from the records, when link counts and the parents of
// directories are known:
//
//	Source ──walk──▶ contents ───────────────────▶ Sink, or
//	          └────▶ spool of records ──tables──▶  io.WriterAt
//
// So the bytes depend on the tree and the options only, and memory on the number of inodes only by a few bytes for
// each: spools beyond a bound are temporary files.
//
// # Concurrency
//
// An [Image] and its [Inode]s may be used by many goroutines. A writer belongs to its caller; WriteShip starts workers and
// ends them before it returns. There are no locks in this package but those inside the reader's cache.
package squashfs
