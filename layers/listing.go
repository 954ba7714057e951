package layers

import (
	"slices"
	"sync/atomic"

	"snapfs/internal/lockorder"
)

// dirItems is a directory's merged listing: items, with changes since on top. Both are in order of cookies, and never
// changed.
type dirItems struct {
	items  []dirItem
	recent []dirItem // one for a name
}

// listing is a cached listing.
type listing struct {
	dirItems
	pending []dirItem // changes since, in order of time
}

// listings caches merged listings of directories. A listing after each change costs the changes, not the directory:
// they are gathered in recent, and become part of items only when they are many.
type listings struct {
	mu    lockorder.Mutex[lockorder.Listings]
	m     map[*node]*listing // guarded by mu, as what it holds
	total int                // items in m; guarded by mu
}

const (
	// maxListed bounds the names that an overlay keeps in memory.
	maxListed = 1 << 20
	// allListed bounds those of all: beyond it each overlay keeps the listing that it has made last.
	allListed = 4 << 20
	// maxRecent is up to how many changes are gathered, and 1/recentPart of a directory.
	maxRecent  = 256
	recentPart = 32
)

// listed counts the names in all listings.
var listed atomic.Int64

// add notes a new name in a cached listing; tree is held for writing.
func (l *listings) add(dir *node, name string, n *node) {
	l.change(dir, dirItem{name: name, ino: n.number(), typ: n.typ})
}

// remove notes that a name is gone; tree is held for writing.
func (l *listings) remove(dir *node, name string) {
	l.change(dir, dirItem{name: name, gone: true})
}

func (l *listings) change(dir *node, it dirItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.m[dir]
	if c == nil {
		return
	}
	it.cookie = nameCookie(it.name)
	c.pending = append(c.pending, it)
	if len(c.pending) > len(c.items)+1024 {
		l.dropLocked(dir) // nobody reads it
	}
}

// drop forgets a directory.
func (l *listings) drop(dir *node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropLocked(dir)
}

func (l *listings) dropLocked(dir *node) {
	if c := l.m[dir]; c != nil {
		l.countLocked(-len(c.items))
		delete(l.m, dir)
	}
}

func (l *listings) countLocked(n int) {
	l.total += n
	listed.Add(int64(n))
}

// cached gives a directory's listing if it is known, up to date.
func (l *listings) cached(dir *node) (dirItems, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.m[dir]
	if c == nil {
		return dirItems{}, false
	}
	if len(c.pending) > 0 {
		was := len(c.items)
		c.dirItems = c.changed(c.pending)
		c.pending = nil
		l.countLocked(len(c.items) - was)
	}
	return c.dirItems, true
}

// put caches a directory's items.
func (l *listings) put(dir *node, items []dirItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[*node]*listing{}
	}
	l.dropLocked(dir)
	most := maxListed
	if listed.Load()+int64(len(items)) > allListed {
		most = 0
	}
	for old := range l.m {
		if l.total+len(items) <= most {
			break
		}
		l.dropLocked(old)
	}
	l.m[dir] = &listing{dirItems: dirItems{items: items}}
	l.countLocked(len(items))
}

// close forgets all.
func (l *listings) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countLocked(-l.total)
	l.m = nil
}

// changed applies changes, which are in order of time.
func (s dirItems) changed(pending []dirItem) dirItems {
	last := make(map[string]dirItem, len(pending))
	for _, p := range pending {
		last[p.name] = p
	}
	come := make([]dirItem, 0, len(last))
	for _, p := range last {
		come = append(come, p)
	}
	slices.SortFunc(come, byCookie)
	for i, p := range come {
		if i > 0 && come[i-1].cookie == p.cookie || meets(s.items, p) || meets(s.recent, p) {
			return dirItems{items: mergeItems(mergeItems(s.items, s.recent), pending)}
		}
	}
	s.recent = overlay(s.recent, come, true)
	if len(s.recent) > maxRecent+len(s.items)/recentPart {
		return dirItems{items: overlay(s.items, s.recent, false)}
	}
	return s
}

// meets reports whether another name has p's cookie, which about never happens: both would have to give way to each
// other.
func meets(items []dirItem, p dirItem) bool {
	i := firstFrom(items, p.cookie)
	return i < len(items) && items[i].cookie == p.cookie && items[i].name != p.name
}

// overlay puts changes on top of items; those that say that a name is gone stay if they are wanted.
func overlay(items, changes []dirItem, gone bool) []dirItem {
	out := make([]dirItem, 0, len(items)+len(changes))
	for len(items) > 0 || len(changes) > 0 {
		if len(changes) == 0 || len(items) > 0 && items[0].cookie < changes[0].cookie {
			out = append(out, items[0])
			items = items[1:]
			continue
		}
		if len(items) > 0 && items[0].cookie == changes[0].cookie {
			items = items[1:]
		}
		if gone || !changes[0].gone {
			out = append(out, changes[0])
		}
		changes = changes[1:]
	}
	return out
}

// from yields the names from a cookie on until yield returns false.
func (s dirItems) from(cookie uint64, yield func(dirItem) bool) {
	items, recent := s.items[firstFrom(s.items, cookie):], s.recent[firstFrom(s.recent, cookie):]
	for len(items) > 0 || len(recent) > 0 {
		if len(recent) == 0 || len(items) > 0 && items[0].cookie < recent[0].cookie {
			if !yield(items[0]) {
				return
			}
			items = items[1:]
			continue
		}
		if len(items) > 0 && items[0].cookie == recent[0].cookie {
			items = items[1:]
		}
		if !recent[0].gone && !yield(recent[0]) {
			return
		}
		recent = recent[1:]
	}
}
