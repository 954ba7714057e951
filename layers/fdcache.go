package layers

import (
	"container/list"
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// fdKind is what a cached descriptor is good for.
type fdKind uint8

const (
	fdDir   fdKind = iota // O_PATH on a directory: base of *at calls
	fdRead                // O_RDONLY on a regular file
	fdWrite               // O_RDWR on a regular file
)

type fdKey struct {
	o    *obj
	kind fdKind
}

// descriptor is an open file shared by its users; release gives it back.
type descriptor struct {
	fd    int
	key   fdKey
	cache *fdCache
	refs  int           // users plus one while cached; guarded by cache.mu
	elem  *list.Element // nil once it left the cache; guarded by cache.mu
	row   row           // what is written through it
}

// fdCache keeps the most recently used descriptors of directory layers open.
type fdCache struct {
	limit int

	mu  sync.Mutex
	m   map[fdKey]*descriptor // guarded by mu
	lru *list.List            // of *descriptor, front newest; guarded by mu
}

// descriptors is shared by all overlays, because the limit is one of the process.
var descriptors = newFDCache(fdLimit())

// fdLimit leaves most of the process's descriptors to others, and bounds the memory of the host's inodes that ours pin.
func fdLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 256
	}
	return int(min(max(r.Cur/4, 64), 8192))
}

func newFDCache(limit int) *fdCache {
	return &fdCache{limit: limit, m: map[fdKey]*descriptor{}, lru: list.New()}
}

// get returns the cached descriptor of key with a reference, or nil.
func (c *fdCache) get(key fdKey) *descriptor {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.m[key]
	if d == nil {
		return nil
	}
	d.refs++
	c.lru.MoveToFront(d.elem)
	return d
}

// put caches fd and returns it with a reference; if another came first, that one wins.
func (c *fdCache) put(key fdKey, fd int) *descriptor {
	c.mu.Lock()
	if d := c.m[key]; d != nil {
		d.refs++
		c.mu.Unlock()
		_ = unix.Close(fd) // nothing was written through it
		return d
	}
	d := &descriptor{fd: fd, key: key, cache: c, refs: 2}
	d.elem = c.lru.PushFront(d)
	c.m[key] = d
	var dead []int
	for c.lru.Len() > c.limit {
		dead = c.evictLocked(c.lru.Back().Value.(*descriptor), dead)
	}
	c.mu.Unlock()
	closeAll(dead)
	return d
}

// evictLocked takes d out of the cache; its descriptor is appended to dead if nobody uses it. mu is held.
func (c *fdCache) evictLocked(d *descriptor, dead []int) []int {
	c.lru.Remove(d.elem)
	d.elem = nil
	delete(c.m, d.key)
	d.refs--
	if d.refs == 0 {
		dead = append(dead, d.fd)
	}
	return dead
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // write errors were reported by pwrite and fsync
	}
}

// share takes another reference; the caller has one.
func (d *descriptor) share() {
	d.cache.mu.Lock()
	d.refs++
	d.cache.mu.Unlock()
}

// release gives a reference back.
func (d *descriptor) release() {
	d.cache.mu.Lock()
	d.refs--
	dead := d.refs == 0
	d.cache.mu.Unlock()
	if dead {
		_ = unix.Close(d.fd) // write errors were reported by pwrite and fsync
	}
}

// drop forgets the descriptors of one obj.
func (c *fdCache) drop(o *obj) { closeAll(c.detach(o, nil)) }

// detach forgets the descriptors of one obj and appends those that nobody uses, for the caller to close.
func (c *fdCache) detach(o *obj, dead []int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for kind := fdDir; kind <= fdWrite; kind++ {
		if d := c.m[fdKey{o, kind}]; d != nil {
			dead = c.evictLocked(d, dead)
		}
	}
	return dead
}

// purge forgets all descriptors that match.
func (c *fdCache) purge(match func(fdKey) bool) { closeAll(c.takeOut(match)) }

// takeOut forgets all descriptors that match and gives those that nobody uses, for the caller to close: a thousand take a
// millisecond, for which nobody should have to wait.
func (c *fdCache) takeOut(match func(fdKey) bool) (dead []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, d := range c.m {
		if match(key) {
			dead = c.evictLocked(d, dead)
		}
	}
	return dead
}

// shrink gives half of the cache back, for when the process has run out of descriptors.
func (c *fdCache) shrink() {
	c.mu.Lock()
	var dead []int
	for n := c.lru.Len() / 2; n > 0; n-- {
		dead = c.evictLocked(c.lru.Back().Value.(*descriptor), dead)
	}
	c.mu.Unlock()
	closeAll(dead)
}

// openat is openat(2) that never follows a last symlink, retries when interrupted and makes room once in a full table.
func openat(dirfd int, name string, flags int, mode uint32) (int, error) {
	shrunk := false
	for {
		fd, err := unix.Openat(dirfd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EMFILE) && !shrunk {
			descriptors.shrink()
			shrunk = true
			continue
		}
		return fd, err
	}
}
