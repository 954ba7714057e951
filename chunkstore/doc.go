// Package chunkstore keeps byte streams as deduplicated, compressed chunks in a Badger database and packs.
//
// # Nouns
//
//	stream    the bytes that an ingest stores and a reader returns: an image or a document
//	part      a section of a stream that a Hint announces: a file's data, a metadata table; a chunk starts with it
//	chunk     a content-addressed piece of a part, with a number that is never used again
//	value     a caller's data under a bucket and a key
//	record    an entry of a pack: a block, a delta, or uncompressed chunks
//	block     many chunks in one zstd frame, similar ones together
//	prefix    the dictionary of blocks: a chunk that no manifest names, with what their chunks have in common
//	delta     one chunk in a frame whose dictionary is its bases: older, newer or similar chunks
//	lineage   versions of a chunk, each a delta of another; Optimize makes the newest the one that is none
//	generation of a chunk: 0, or for a delta more than those of its bases, so that every chain ends
//	pack      an append-only file of records
//	journal   an append-only file of what packs do not hold; the index can be rebuilt from packs and journal
//	page      the part of the index that says where the chunks of 256 consecutive numbers lie
//	manifest  the runs of chunk numbers that make up a stream
//	rank      of a record: 0 without bases, 1 of a block with a prefix, 1 + generation of a delta; bases have lower ones
//	live      named by a manifest, or a base or prefix that something live needs
//	loader    decodes records ahead for programs that read a tree of small files
//	doomed    of chunks: a collection has decided to remove them, and look-ups do not find them any more
//
// # Writing and reading
//
//	Write ─▶ recompressor ─▶ chunker ─▶ hash known? ──yes──▶ its number
//	                                        │ no
//	         predecessor (Hint.Prev) ───▶ delta ─ does not pay ─┐
//	         none ─▶ pending, sorted ─▶ similar chunk? ▶ delta ─┤
//	                                      └──────── no ────────▶ block ─▶ pack
//	Commit: sync packs ─▶ journal ─▶ one transaction: hashes, pages, manifest, the caller's values
//
// Cutting, hashing, looking up and encoding run in goroutines of their own (pipeline.go), encoders in as many as there
// are processors. Numbers, cuts and manifests do not depend on how many that is.
//
// There are three ways to read:
//
//   - Small reads go through the cache of decoded records. The first reader of a record of small files has the loader
//     decode what lies around it (loader.go).
//   - Reads of 64 KiB and more have the records that they need as a whole decoded into their own memory, in parallel
//     (direct.go). Uncompressed records are read directly into the caller's memory (plain.go). Both bypass the cache,
//     so that reading large files does not empty it.
//   - WriteTo reads a stream from end to end.
//
// A record's checksum is verified whenever the record is read from a pack, and only then. Its digest, which says what the
// chunks hash to, is verified by whatever moves chunks, and by Check and RebuildIndex (digest.go).
//
// Numbers follow the order of the stream, so that a manifest is a few runs, whatever the order of records. Payload is
// synced before a transaction names it, a chunk is named with or after its bases, and the manifest comes last. A crash
// leaves chunks that nothing names, which GC collects, or bytes at the end of a pack, which Open cuts off.
//
// # Formats
//
// Packs and records: internal/pack. Frames: internal/frame. Cuts: internal/cdc. Sketches: internal/sketch. Transforms:
// internal/transform. Journal: journal.go. Index: index.go (keys), page.go, manifest.go. All of it:
// docs/FORMAT-store.md.
//
// # Locks
//
// From the outside in; a lock is only taken while those before it are held, or none (docs/LOCKS.md):
//
//	Store.closeMu     the call of Close
//	Store.gcMu        one collection or check
//	liveSet.mu        what manifests need; held while the index is read, so no transaction waits for it
//	Store.numMu       chunk numbers; held while some are reserved in the index
//	Store.upkeepMu    a rewrite of the journal, or a merge of Badger's tables; transactions go on beside it
//	Store.writeMu     the one transaction that writes the index; held while callers' functions run in it (group.go)
//	pack.Set.syncMu   one sync
//	pack.Set.appendMu one append, or cut
//	pins.mu           what a collection must leave alone
//	Ingest.mu         an ingest and its encoders
//	loader.mu         what to decode ahead; Store.stateMu is taken under it
//	pack.Set.mu, lru.mu, blockCache.flightMu, sketch.Index.mu, Store.stateMu, line.mu    leaves
//
// Badger merges its tables only when it is told to: mergeTables and Close read all of them first, and compare what was
// written with what was read (merges.go).
//
// Whatever takes a time that grows with the store is done beside transactions: it reads the index as it was at one
// time, writes what nothing names yet, and ends with a short transaction (upkeep.go, journalrewrite.go, tables.go).
//
// A goroutine that decodes waits for others that decode records of lower ranks only.
package chunkstore
