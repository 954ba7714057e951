package chunkstore

import (
	badger "github.com/dgraph-io/badger/v4"

	"snapfs/internal/limits"
)

// Bounds of the cache of decompressed blocks of the index. Looking up a hash in a store of 1,500,000 chunks takes 75 µs
// of processor time with the smallest cache, and 10 with one that holds all blocks (BenchmarkLookup).
const (
	indexCacheMin   = 8 << 20
	indexCacheMax   = 256 << 20
	indexCacheShare = 32 // at most one of so many parts of the memory that the process may have
	indexInflated   = 3  // bytes of blocks per byte of a table, at most
)

// indexCacheFor returns the size of the cache for tables of so many bytes in a process that may have this much memory.
func indexCacheFor(tables, memory int64) int64 {
	return max(min(tables*indexInflated, memory/indexCacheShare, indexCacheMax), indexCacheMin)
}

// sizeIndexCache makes the cache of the index as large as its tables need.
func sizeIndexCache(db *badger.DB) error {
	n := int64(0)
	for _, t := range db.Tables() {
		n += int64(t.OnDiskSize)
	}
	_, err := db.CacheMaxCost(badger.BlockCache, indexCacheFor(n, limits.Memory()))
	return err
}
