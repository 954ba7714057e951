package chunkstore

import (
	"container/list"

	"snapfs/internal/lockorder"
)

// lru is a cache bounded by the sum of its entries' costs. Safe for concurrent use.
type lru[K comparable, V any] struct {
	mu    lockorder.Mutex[lockorder.LRU]
	limit int64
	cost  int64               // guarded by mu
	byKey map[K]*list.Element // guarded by mu
	order *list.List          // of *lruEntry, most recently used first; guarded by mu
	epoch int64               // counts invalidations; guarded by mu
}

type lruEntry[K comparable, V any] struct {
	key  K
	val  V
	cost int64
}

func newLRU[K comparable, V any](limit int64) *lru[K, V] {
	return &lru[K, V]{limit: limit, byKey: map[K]*list.Element{}, order: list.New()}
}

// get also returns the epoch. put takes it to detect that the value is older than an invalidation.
func (c *lru[K, V]) get(k K) (v V, epoch int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[k]
	if !ok {
		return v, c.epoch, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).val, c.epoch, true
}

// has reports whether a key is there; it does not count as a use.
func (c *lru[K, V]) has(k K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.byKey[k]
	return ok
}

// put stores a value that was loaded after get returned epoch, unless something was invalidated since.
func (c *lru[K, V]) put(k K, v V, cost, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch || cost > c.limit {
		return
	}
	c.removeLocked(k)
	c.byKey[k] = c.order.PushFront(&lruEntry[K, V]{k, v, cost})
	c.cost += cost
	for c.cost > c.limit {
		c.removeLocked(c.order.Back().Value.(*lruEntry[K, V]).key)
	}
}

// invalidate drops keys, and prevents loads under way from being stored.
func (c *lru[K, V]) invalidate(keys ...K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	for _, k := range keys {
		c.removeLocked(k)
	}
}

// clear drops everything.
func (c *lru[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch++
	c.byKey, c.cost = map[K]*list.Element{}, 0
	c.order.Init()
}

// removeLocked drops a key; mu is held.
func (c *lru[K, V]) removeLocked(k K) {
	if e, ok := c.byKey[k]; ok {
		c.order.Remove(e)
		delete(c.byKey, k)
		c.cost -= e.Value.(*lruEntry[K, V]).cost
	}
}
