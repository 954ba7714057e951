package layers

import (
	"errors"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// fdKind is what a cached descriptor is good for.
type fdKind uint8

const (
	fdDir   fdKind = iota // O_PATH on a directory: base of *at calls
	fdRead                // O_RDONLY on a regular file
	fdWrite               // O_RDWR on a regular file
)

type fdKey struct {
	o    *part
	kind fdKind
}

// descriptor is an open file shared by its users; release gives it back.
type descriptor struct {
	fd    int
	key   fdKey
	cache *fdCache
	refs  int // users plus one while cached; guarded by cache.mu
	row   row // what is written through it

	in         *fdList     // nil once it left the cache; guarded by cache.mu
	next, prev *descriptor // in it
}

// fdList is a list of descriptors, the newest first. The zero value is empty.
type fdList struct {
	root descriptor // next is the newest, prev the oldest; nil in a list that was never used
	n    int
}

// push puts d, which is in no list, to the front.
func (l *fdList) push(d *descriptor) {
	if l.root.next == nil {
		l.root.next, l.root.prev = &l.root, &l.root
	}
	d.prev, d.next = &l.root, l.root.next
	d.prev.next, d.next.prev = d, d
	d.in = l
	l.n++
}

// oldest gives the last of a list that is not empty.
func (l *fdList) oldest() *descriptor { return l.root.prev }

// unlink takes d out of its list.
func (d *descriptor) unlink() {
	d.prev.next, d.next.prev = d.next, d.prev
	d.in.n--
	d.in, d.next, d.prev = nil, nil, nil
}

// fdCache keeps the most recently used descriptors of directory layers open. Half of it is divided among the overlays,
// for the newest of each; the other half, and what of that is not used, is anybody's.
type fdCache struct {
	limit int

	mu     lockorder.Mutex[lockorder.FDs]
	m      map[fdKey]*descriptor // guarded by mu
	loose  fdList                // those that are not among the newest of their share; guarded by mu
	shares map[*share]bool       // that have any of their newest here; guarded by mu
}

// descriptors is shared by all overlays, because the limit is one of the process.
var descriptors = newFDCache(fdLimit())

// fdLimit leaves most of the process's descriptors to others, and bounds the memory of the host's inodes that ours pin.
func fdLimit() int { return int(min(max(fileLimit()/4, 32), 8192)) }

func newFDCache(limit int) *fdCache {
	return &fdCache{limit: limit, m: map[fdKey]*descriptor{}, shares: map[*share]bool{}}
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
	c.unlinkLocked(d)
	c.enterLocked(d)
	return d
}

// enterLocked makes d the newest of its share. mu is held.
func (c *fdCache) enterLocked(d *descriptor) {
	s := d.key.o.layer.of()
	if s.cached.n == 0 {
		c.shares[s] = true
	}
	s.cached.push(d)
	for most := c.ownLocked(); s.cached.n > most; {
		old := s.cached.oldest()
		old.unlink()
		c.loose.push(old)
	}
}

// ownLocked is how many of the newest each overlay keeps. mu is held.
func (c *fdCache) ownLocked() int { return max(c.limit/2/len(c.shares), 1) }

// unlinkLocked takes d out of its list. mu is held.
func (c *fdCache) unlinkLocked(d *descriptor) {
	in := d.in
	d.unlink()
	if in != &c.loose && in.n == 0 {
		delete(c.shares, d.key.o.layer.of())
	}
}

// oldestLocked gives what is to go so that d may stay. mu is held.
func (c *fdCache) oldestLocked(d *descriptor) *descriptor {
	if c.loose.n > 0 {
		return c.loose.oldest()
	}
	most := c.ownLocked()
	for s := range c.shares {
		if s.cached.n > most {
			return s.cached.oldest() // there were fewer overlays when it took these
		}
	}
	return d.in.oldest()
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
	c.m[key] = d
	c.enterLocked(d)
	var dead []int
	for len(c.m) > c.limit && d.in != nil {
		dead = c.evictLocked(c.oldestLocked(d), dead)
	}
	c.mu.Unlock()
	closeAll(dead)
	return d
}

// evictLocked takes d out of the cache; its descriptor is appended to dead if nobody uses it. mu is held.
func (c *fdCache) evictLocked(d *descriptor, dead []int) []int {
	c.unlinkLocked(d)
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

// drop forgets the descriptors of one part.
func (c *fdCache) drop(o *part) { closeAll(c.detach(o, nil)) }

// detach forgets the descriptors of one part and appends those that nobody uses, for the caller to close.
func (c *fdCache) detach(o *part, dead []int) []int {
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

// takeOut forgets all descriptors that match and gives those that nobody uses, for the caller to close: a thousand take
// a millisecond, for which nobody should have to wait.
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

// shrink gives half of the cache back, for when the process has run out of descriptors: what is nobody's newest first.
func (c *fdCache) shrink() {
	c.mu.Lock()
	var dead []int
	n := (len(c.m) + 1) / 2
	for ; n > 0 && c.loose.n > 0; n-- {
		dead = c.evictLocked(c.loose.oldest(), dead)
	}
	for _, d := range c.m {
		if n--; n < 0 {
			break
		}
		dead = c.evictLocked(d, dead)
	}
	c.mu.Unlock()
	closeAll(dead)
}

// GiveBack closes half of the descriptors that overlays keep open for later. For callers about to run out of them; safe
// for concurrent use.
func GiveBack() { descriptors.shrink() }

// openat is openat(2) that never follows a last symlink, retries when interrupted and makes room once in a full table.
func openat(dirfd int, name string, flags int, mode uint32) (int, error) {
	return opening(func() (int, error) { return unix.Openat(dirfd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode) })
}

// opening calls open, again when it is interrupted, and once more when it has made room in a full table.
func opening(open func() (int, error)) (int, error) {
	shrunk := false
	for {
		fd, err := open()
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if noRoom(err) && !shrunk {
			descriptors.shrink()
			shrunk = true
			continue
		}
		return fd, err
	}
}
