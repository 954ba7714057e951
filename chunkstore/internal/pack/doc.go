// Package pack keeps records in append-only files.
//
// # Nouns
//
//	pack      a file of records, named by its number (%08d.pack)
//	record    an entry of a pack: some chunks, uncompressed or as one frame
//	member    a chunk in a record
//	location  where a record lies: pack, offset, length
//	Set       the packs of a store; records are appended to one of them
//	holds     packs that a writer has appended to: they are not cut until the records are named or dropped
//	index     the store's index; it names a record by its location
//
// # Format
//
// Integers are little-endian. A pack:
//
//	magic   8 bytes "snapPACK"
//	version 2 bytes, 1
//	pad     2 bytes, 0
//	number  4 bytes
//	crc     4 bytes, CRC-32C of the 16 before it
//	records
//
// A record says by itself which chunks it holds, so that the index can be made from packs alone:
//
//	crc     4 bytes, CRC-32C of everything behind it
//	kind    1 byte: Stored, Block, Delta, Journal, Block with a base; bit 4: there is a digest
//	body    uvarint length of what follows
//	digest  4 bytes, or none
//	members uvarint count, then per chunk: varint number - number before it (first: number), uvarint length
//	chain   of a delta only: uvarint generation, uvarint count of bases, per base: varint number - base
//	base    of a block with one only: varint number of the first chunk - base
//	frame   the chunks one behind the other, as they are or as one zstd frame
//
// A delta with a digest has no count of members, of which it has one, and this chain:
//
//	uvarint 2 * generation + 0 for one base, 1 for several; of several, uvarint count; per base: varint number - base
//
// This package does not look into digests.
//
// Pages of PageSize bytes in which no record is live can be holes (Set.Punch): they read as zeros, and take no space.
//
// # Crashes
//
// A record is durable after Sync. What the index does not name is cut off when a set is opened, and when its writer
// gives it up (Drop).
//
// # Locks
//
// Set.syncMu (one sync), or Set.appendMu (one append, or cut); then Set.mu.
package pack
