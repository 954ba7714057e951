// Package chunkstore keeps byte streams as deduplicated, compressed chunks in a Badger database and packs.
//
// # Nouns
//
//	stream    what an ingest takes and a reader gives: an image or a document
//	part      a stretch of a stream that a Hint announces: a file's data, a metadata table; a chunk starts with it
//	chunk     a content-addressed piece of a part, with a number that is never used again
//	value     what a caller keeps under a bucket and a key
//	record    what is written to a pack at once: a block, a delta, or chunks as they are
//	block     many chunks in one zstd frame, alike beside alike
//	delta     one chunk in a frame whose dictionary is its bases, older or similar chunks
//	generation of a chunk: 0, or for a delta more than those of its bases, so that every chain ends
//	pack      an append-only file of records
//	journal   an append-only file of what else the index holds: packs and journal suffice to rebuild it
//	page      the index's answer to where the chunks of 256 consecutive numbers lie
//	manifest  the runs of chunk numbers that spell a stream
//	live      named by a manifest, or a base that something live needs
//	loader    what decodes records ahead of those who read a tree of small files
//	doomed    what a collection has decided to remove: not found any more, soon gone
//
// # The way of a stream
//
//	Write ─▶ recompressor ─▶ chunker ─▶ hash known? ──yes──▶ its number
//	                                        │ no
//	         predecessor (Hint.Prev) ───▶ delta ─ does not pay ─┐
//	         none ─▶ pending, sorted ─▶ similar chunk? ▶ delta ─┤
//	                                      └──────── no ────────▶ block ─▶ pack
//	Commit: sync packs ─▶ journal ─▶ one transaction: hashes, pages, manifest, the caller's values
//
// The way back has three roads. Small reads go through the cache of decoded records; the first reader of a record of
// small files has the loader decode what lies around (loader.go). Reads of 64 KiB and more have the records that they
// need as a whole decoded into their own memory, side by side (direct.go), and what does not compress is read from the
// pack straight to where it is wanted (plain.go); these pass the cache by, so that reading large files does not empty
// it. WriteTo reads a stream from end to end. Whichever way, a record's checksum is verified whenever it is read from a
// pack, and only then.
//
// Numbers follow the order of the stream, so that a manifest is a few runs, whatever the order of records.
// Payload is synced before a transaction names it, a chunk is named with or after its bases, and the manifest comes
// last: a crash leaves chunks that nothing names, which GC takes, or bytes at the end of a pack, which Open cuts off.
//
// # Formats
//
// Packs and records: internal/pack. Frames: internal/frame. Cuts: internal/cdc. Sketches: internal/sketch. Transforms:
// internal/transform. Journal: journal.go. Index: index.go (keys), page.go, manifest.go. All of it:
// docs/FORMAT-store.md.
//
// # Locks
//
// From the outside in; a lock is only taken while those before it are held, or none:
//
//	Store.gcMu        one collection or check
//	Store.numMu       chunk numbers
//	Store.writeMu     the one transaction that writes the index; held while a caller's function runs in it
//	pack.Set.syncMu   one sync
//	pack.Set.appendMu one append, or cut
//	pins.mu           what a collection must leave alone
//	Ingest.mu         an ingest and its encoders
//	loader.mu         what to decode ahead; Store.stateMu is taken under it
//	pack.Set.mu, liveSet.mu, lru.mu, blockCache.flightMu, sketch.Index.mu, Store.stateMu    never held while another lock is
//	                  taken, but for liveSet.mu, under which the index is read
//
// Badger merges its tables only when told to: mergeTables, shrinkIndex and Close read all of them first.
//
// A goroutine that decodes waits for others that decode bases of lower generations only.
package chunkstore
