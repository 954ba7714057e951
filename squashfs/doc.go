// Package squashfs reads, writes and checks squashfs 4.0 images.
//
// It knows nothing of chunks, overlays or FUSE. The format itself, byte by byte, is in docs/FORMAT.md; the structures
// are in format*.go, one comment with the layout above each.
//
// # Nouns
//
//   - image: one squashfs file system, as a file or any io.ReaderAt.
//   - superblock: its first 96 bytes, which say where everything is.
//   - inode: one file, directory, symlink, device, fifo or socket; it may have several names (hard links). Inodes are
//     numbered from 1; a [Ref] is the location of one in the inode table.
//   - block: a piece of a file's contents, all of the same size except the last; stored compressed, uncompressed, or,
//     if it is zeros, not at all.
//   - fragment: a block that holds several small files.
//   - metadata block: 8 KiB of a table.
//   - extension section: what squashfs cannot hold, behind bytes_used where other readers do not look.
//   - store form: for the chunk store: everything uncompressed, each file's data contiguous.
//   - ship form: for other tools: compressed, with fragments, equal files stored once.
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
// [Open] reads the superblock only. [Image.Inode] and the methods of [Inode] go through metadata blocks, fragments and
// compressed data blocks by a bounded [Cache]; uncompressed data is read straight into the caller's buffer. There is
// nothing to close.
//
// Images are not trusted. Each size, count and location is checked against the image or a stated limit before memory
// is allocated for it, names that no file can have are refused, and a panic inside a decompressor is caught.
// Damage is an error of class [ErrCorrupt], a [CorruptError] with its location if that is known. Other errors
// are the reader's and are not cached. Memory for one image:
//
//   - its cache, and an unpacked block for each goroutine that reads; those for stored blocks are shared by all images;
//   - the id table, 256 KiB at most, and arrays of table offsets, which are stored in the image uncompressed;
//   - for an inode: a symlink's target of 64 KiB at most, the index of a directory (65,535 names at most) once it is
//     needed, and 32 bytes for each 256 blocks of a file that have been passed;
//   - 2 MiB for the directories that are known to be sorted;
//   - the names of 16 directories of 128 KiB at most, with the metadata blocks that they lie in;
//   - 16 sets of attributes of 128 KiB at most.
//
// [ImageSource] reads a whole image and ensures that it is a tree. It refuses directories that contain themselves, have
// two names or share their listings, inodes that overlap, numbers that occur twice, wrong indexes, more names,
// attributes or contents than an image of that size can have, and attributes that no program can have set. What files
// share is read once: see [Sharer] and [XattrSet]. It takes [ImportMemory] at most. The tree may be of any depth:
// neither ImageSource nor a writer keeps more than the directories above the current one.
//
// [Check] verifies a whole image and reports every violated rule.
//
// # Writing
//
// [WriteStore] and [WriteShip] take a tree as a [Source]: [ImageSource] or one of another package. Both work in two
// passes. The first walks the tree in post-order with names in byte order, writes contents, numbers the inodes
// and spools each. The second builds the tables from the spooled inodes, when link counts and the parents of
// directories are known:
//
//	Source ──walk──▶ contents ───────────────────▶ Sink, or
//	          └────▶ spool of inodes ───tables──▶  io.WriterAt
//
// So the bytes depend only on the tree and the options. Memory grows with the directories above the current one and what
// is in them, and by a few bytes for each directory, each file with several names and each set of attributes. It does not
// grow with the number of files: spools beyond a bound are temporary files.
//
// # Concurrency
//
// An [Image] and its [Inode]s may be used by many goroutines. A writer belongs to its caller; WriteShip starts workers
// and ends them before it returns. The reader's locks, Cache.mu and refSet.mu, are leaves: nothing is read, unpacked or
// locked while one is held. Everything else in it is immutable or an atomic pointer to something immutable (see lazy).
package squashfs
