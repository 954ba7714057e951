package squashfs

import (
	"sync/atomic"

	"snapfs/internal/lockorder"
)

// DefaultCacheBytes is the size of a reader's cache if the options do not set one.
const DefaultCacheBytes = 32 << 20

// entryOverhead is roughly the cost of an entry besides its data.
const entryOverhead = 192

// Cache holds unpacked blocks and directory indexes of any number of images, up to a number of bytes; the least
// recently used ones are dropped first. What several goroutines need at the same time is unpacked once, by the first of
// them, with no lock held. Blocks that are being unpacked are not counted: there is one for each goroutine that reads.
// A Cache is safe for concurrent use.
type Cache struct {
	max int64 // immutable

	mu      lockorder.Mutex[lockorder.SquashCache]
	used    int64                    // guarded by mu: bytes of the entries in the ring
	entries map[cacheKey]*cacheEntry // guarded by mu
	ring    cacheEntry               // guarded by mu: sentinel; ring.next is the most recently used
}

// cacheKey identifies a block by its location and by what it is stored as. A block that damaged pointers reach both as
// data and as metadata is two entries.
type cacheKey struct {
	image uint64 // Image.id
	off   int64
	// a data block's header; metadataKey for metadata; indexKey for a directory's index, off being its inode's Ref
	word uint32
}

const (
	metadataKey = ^uint32(0)
	indexKey    = metadataKey - 1
)

type cacheEntry struct {
	key        cacheKey
	prev, next *cacheEntry // guarded by Cache.mu; nil while not in the ring

	ready bool          // guarded by Cache.mu: the fields below are set
	done  chan struct{} // closed when they are set
	data  []byte        // immutable once set
	end   int64         // of a metadata block: where the next one begins
	index []indexEntry  // of a directory, which has no data; immutable once set
	err   error
}

var imageIDs atomic.Uint64

// NewCache returns a cache that images can share. maxBytes below 1 means DefaultCacheBytes.
func NewCache(maxBytes int64) *Cache {
	if maxBytes < 1 {
		maxBytes = DefaultCacheBytes
	}
	c := &Cache{max: maxBytes, entries: make(map[cacheKey]*cacheEntry)}
	c.ring.prev, c.ring.next = &c.ring, &c.ring
	return c
}

// acquire finds the entry of key. If owner is true, the entry is new: callers must load it and call settle. Otherwise
// the entry is complete.
func (c *Cache) acquire(key cacheKey) (e *cacheEntry, owner bool) {
	c.mu.Lock()
	e, ok := c.entries[key]
	if !ok {
		e = &cacheEntry{key: key, done: make(chan struct{})}
		c.entries[key] = e
		c.mu.Unlock()
		return e, true
	}
	if e.ready {
		c.toFront(e)
		c.mu.Unlock()
		return e, false
	}
	c.mu.Unlock()
	<-e.done
	return e, false
}

// peek returns a block if it is cached.
func (c *Cache) peek(key cacheKey) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	if !ok || !e.ready {
		return nil, false
	}
	c.toFront(e)
	return e.data, true
}

// settle completes an entry and wakes the goroutines that wait for it. They get the error, if any, which is not cached.
func (c *Cache) settle(e *cacheEntry, data []byte, end int64, err error) {
	e.data, e.end = data, end
	c.finish(e, err)
}

// settleIndex is settle for a directory's index.
func (c *Cache) settleIndex(e *cacheEntry, index []indexEntry, err error) {
	e.index = index
	c.finish(e, err)
}

func (c *Cache) finish(e *cacheEntry, err error) {
	e.err = err
	c.mu.Lock()
	if err != nil {
		delete(c.entries, e.key)
	} else {
		e.ready = true
		c.insert(e)
		for c.used > c.max && c.ring.prev != &c.ring {
			c.evict(c.ring.prev)
		}
	}
	c.mu.Unlock()
	close(e.done)
}

// indexCost is roughly the cost of an entry of a directory's index, with the longest name.
const indexCost = 320

func (e *cacheEntry) cost() int64 {
	return int64(cap(e.data)) + indexCost*int64(cap(e.index)) + entryOverhead
}

// insert puts a new entry at the front. Requires mu.
func (c *Cache) insert(e *cacheEntry) {
	e.prev, e.next = &c.ring, c.ring.next
	e.prev.next, e.next.prev = e, e
	c.used += e.cost()
}

// toFront marks an entry of the ring as just used. Requires mu.
func (c *Cache) toFront(e *cacheEntry) {
	if c.ring.next == e {
		return
	}
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = &c.ring, c.ring.next
	e.prev.next, e.next.prev = e, e
}

// evict removes an entry. Requires mu.
func (c *Cache) evict(e *cacheEntry) {
	e.prev.next, e.next.prev = e.next, e.prev
	delete(c.entries, e.key)
	c.used -= e.cost()
}
