package layers

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/internal/readset"
)

// Cookies. A name's cookie is a hash of it, so that a listing goes on at the right place whatever came or went
// meanwhile, also in a new process.
const (
	cookieStart  = 0
	cookieDot    = 1 // after "."
	cookieDotDot = 2 // after ".."
	cookieFirst  = 16
)

// nameCookie hashes a name: FNV-1a, mixed, 62 bits (off_t is signed).
func nameCookie(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return max(h>>2, cookieFirst)
}

// dirItem is one name of a cached listing, or in what has changed, with gone, a name that went.
type dirItem struct {
	name   string
	cookie uint64
	ino    uint64
	typ    uint32
	gone   bool
}

func byCookie(a, b dirItem) int {
	if c := cmp.Compare(a.cookie, b.cookie); c != 0 {
		return c
	}
	return cmp.Compare(a.name, b.name)
}

// mergeItems applies changes to a listing.
func mergeItems(items, pending []dirItem) []dirItem {
	last := make(map[string]dirItem, len(pending))
	for _, p := range pending {
		last[p.name] = p
	}
	out := make([]dirItem, 0, len(items)+len(last))
	for _, it := range items {
		if _, changed := last[it.name]; !changed {
			out = append(out, it)
		}
	}
	kept := len(out)
	for _, it := range last {
		if !it.gone {
			out = append(out, it)
		}
	}
	if len(out) > kept {
		slices.SortFunc(out, byCookie)
	}
	return spread(out)
}

// spread makes equal cookies of different names distinct; 62-bit hashes meet about never.
func spread(items []dirItem) []dirItem {
	for i := 1; i < len(items); i++ {
		if items[i].cookie <= items[i-1].cookie {
			items[i].cookie = items[i-1].cookie + 1
		}
	}
	return items
}

// ReadDir yields the names after cookie (0 = start), "." and ".." included, until yield returns false. Cookies survive
// concurrent change. yield may call the overlay.
func (o *Overlay) ReadDir(id NodeID, cookie uint64, yield func(DirEntry) bool) error {
	o.tree.RLock()
	l, err := o.listingOf(id)
	o.tree.RUnlock()
	if err != nil {
		return err
	}
	l.after(cookie, yield)
	return nil
}

// ReadDirPlus is ReadDir with each name's Entry, which holds one reference; "." and "..", and what cannot be looked
// up, have a zero Entry. When yield returns false that Entry was not taken: its reference is given back. yield must
// not call the overlay.
func (o *Overlay) ReadDirPlus(id NodeID, cookie uint64, yield func(DirEntry, Entry) bool) error {
	var lost []*node
	o.tree.RLock()
	defer func() {
		o.tree.RUnlock()
		if lost != nil {
			o.revive(lost...)
		}
	}()
	l, err := o.listingOf(id)
	if err != nil {
		return err
	}
	l.after(cookie, func(d DirEntry) bool {
		if d.Cookie == cookieDot || d.Cookie == cookieDotDot {
			return yield(d, Entry{})
		}
		h, err := o.search(l.dir, 0, d.Name)
		if err != nil {
			_ = o.report(err, l.dir.top, d.Name) // who asks for the name gets the error
			return yield(d, Entry{})
		}
		n := o.nodes.enter(l.dir, d.Name, h)
		d.Ino = n.number()
		taken := yield(d, o.entry(n, h.attr))
		switch {
		case !taken:
			o.discard(o.nodes.drop(n, 1, 0))
		case n.dead:
			lost = append(lost, n)
		}
		return taken
	})
	return nil
}

// opened is what a directory shows at one moment.
type opened struct {
	dir      *node
	self, up uint64 // inode numbers of "." and ".."
	items    dirItems
}

// listingOf lists a directory; tree is held for reading.
func (o *Overlay) listingOf(id NodeID) (opened, error) {
	n, err := o.dirNode(id)
	if err != nil {
		return opened{}, err
	}
	l := opened{dir: n, self: n.number(), up: n.number()}
	if n.parent != nil {
		l.up = n.parent.number()
	}
	if o.reads != nil {
		o.noteRead(n, readset.Listing)
	}
	l.items, err = o.itemsOf(n)
	return l, err
}

// after yields what comes after a cookie until yield returns false.
func (l *opened) after(cookie uint64, yield func(DirEntry) bool) {
	if cookie < cookieDot && !yield(DirEntry{Name: ".", Ino: l.self, Mode: unix.S_IFDIR, Cookie: cookieDot}) {
		return
	}
	if cookie < cookieDotDot && !yield(DirEntry{Name: "..", Ino: l.up, Mode: unix.S_IFDIR, Cookie: cookieDotDot}) {
		return
	}
	l.items.from(cookie+1, func(it dirItem) bool {
		return yield(DirEntry{Name: it.name, Ino: it.ino, Mode: it.typ, Cookie: it.cookie})
	})
}

// firstFrom is the index of the first item whose cookie is this one or more.
func firstFrom(items []dirItem, cookie uint64) int {
	i, _ := slices.BinarySearchFunc(items, cookie, func(it dirItem, c uint64) int { return cmp.Compare(it.cookie, c) })
	return i
}

// itemsOf gives a directory's merged listing; tree is held for reading.
func (o *Overlay) itemsOf(n *node) (dirItems, error) {
	if n.dead {
		return dirItems{}, nil
	}
	if items, ok := o.listings.cached(n); ok {
		return items, nil
	}
	items, err := o.mergeBy(n.parts(), listAll)
	if err == nil && o.opts.Nested {
		err = o.nestItems(n, items)
	}
	if err != nil {
		return dirItems{}, err
	}
	o.listings.put(n, items)
	return dirItems{items: items}, nil
}

// merge lists the names that directories show together, topmost first.
func (o *Overlay) merge(parts []*part) ([]dirItem, error) {
	return o.mergeBy(parts, func(p *part, fn func(rawEntry) error) error { return p.backend().list(p, fn) })
}

// mergeBy is merge where list lists one of the directories.
func (o *Overlay) mergeBy(parts []*part, list func(p *part, fn func(rawEntry) error) error) ([]dirItem, error) {
	var items []dirItem
	var seen map[string]bool
	if len(parts) > 1 {
		seen = map[string]bool{}
	}
	for _, part := range parts {
		err := list(part, func(e rawEntry) error {
			if seen != nil {
				if seen[e.name] {
					return nil
				}
				seen[e.name] = true
			}
			if !e.whiteout {
				items = append(items, dirItem{name: e.name, cookie: nameCookie(e.name), ino: e.ino, typ: e.typ})
			}
			return nil
		})
		if err != nil {
			return nil, o.report(err, part, "")
		}
	}
	slices.SortFunc(items, byCookie)
	return spread(items), nil
}
