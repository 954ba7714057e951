// Package pack keeps records in append-only files.
//
// # Nouns
//
//	pack    a file of records, named by its number (%08d.pack)
//	record  what is appended to a pack: some chunks, as they are or as one frame
//	member  a chunk in a record
//	place   where a record lies: pack, offset, length
//	Set     the packs of a store, one of which takes what is appended
//	holds   packs that a writer has appended to: nothing is cut off them until what was appended is named or given up
//	index   what the store knows of packs; it names a record by its place
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
//	kind    1 byte: Stored, Block, Delta, Journal
//	body    uvarint length of what follows
//	members uvarint count, then per chunk: varint number - number before it (first: number), uvarint length
//	chain   of a delta only: uvarint generation, uvarint count of bases, per base: varint number - base
//	frame   the chunks one behind the other, as they are or as one zstd frame
//
// # Crashes
//
// A record is durable after Sync. What the index does not name is cut off when a set is opened, and when its writer
// gives it up (Drop).
//
// # Locks
//
// Set.syncMu (one sync), then Set.mu.
package pack
