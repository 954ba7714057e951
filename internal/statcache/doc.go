// Package statcache keeps files in which an import of a directory notes what it has found of each file, for the next
// import of that directory.
//
// # Nouns
//
//   - A cache is the directory with these files. Its owner removes it whenever it likes: what is lost costs time only.
//   - A Key is whose import of which directory a file is of.
//   - A File is a file of the host as stat(2) tells it. Only what is equal in all of it is the same file, unchanged.
//   - A note is what the importer wants to know about a file that has not changed: any bytes.
//
// # Format
//
// Little-endian. A file whose length, magic, key or sum is not as it should be counts as none.
//
//	magic (8 bytes) │ sum of the key (32) │ records │ index │ number of records (8) │ BLAKE3 of all before (32)
//
//	record  ctime, mtime, birth time (8 each, nanoseconds since 1970) │ uvarint size │ uvarint length of the note │ note
//	index   by ascending inode: inode number (8) │ offset of the record (8)
//
// Files are written beside and renamed, and not synced: after a power failure, the sum tells what did not arrive.
//
// # Bounds
//
// A file has at most MaxBytes of records; files that are noted later are not kept. All files of a cache have at most
// MaxTotal; the ones that were not used for the longest time go first.
//
// # Concurrency
//
// A Reader is immutable. A Writer is for one goroutine. Any number of both may use a cache at a time.
package statcache
