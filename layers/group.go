package layers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// groupName is one further name of a hard-link group that is copied up.
type groupName struct {
	dir  *node // holds one look-up reference
	name string
}

// link is a name of a hard-linked file inside its layer.
type link struct {
	dir  *obj
	name string
}

// groupTables caches which names of a lower layer are hard links of each other. A table is made by one listing of all
// of the layer's directories, when the first hard-linked file of the layer is copied up whose names are not near each other.
type groupTables struct {
	mu sync.Mutex
	m  map[*lower]*groupTable // guarded by mu
}

type groupTable struct {
	once  sync.Once
	links map[uint64][]link // by rawEntry.id; immutable after once
	err   error             // immutable after once
}

// linksOf gives the names of an inode in its layer. The caller holds no lock.
func (o *Overlay) linksOf(top *obj) ([]link, error) {
	g := &o.groups
	for {
		o.tree.RLock()
		err := top.settle()
		form, id := top.layer.lower, top.id().n
		o.tree.RUnlock()
		if err != nil {
			return nil, o.reportPart(err, top)
		}
		g.mu.Lock()
		t := g.m[form]
		if t == nil {
			if g.m == nil {
				g.m = map[*lower]*groupTable{}
			}
			t = &groupTable{}
			g.m[form] = t
		}
		g.mu.Unlock()
		t.once.Do(func() { t.links, t.err = o.scanLinks(top.layer) })
		o.tree.RLock()
		replaced := top.layer.lower != form
		o.tree.RUnlock()
		if replaced {
			g.forget(form) // what was listed may be of either form
			continue
		}
		return t.links[id], t.err
	}
}

// forget drops the table of a layer that has left the stack, or has another form now.
func (g *groupTables) forget(l *lower) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.m, l)
}

// scanLinks lists all directories of a layer and keeps the inodes that occur twice.
func (o *Overlay) scanLinks(l *layer) (map[uint64][]link, error) {
	first := map[uint64]link{}
	all := map[uint64][]link{}
	err := o.eachLink(l, func(e rawEntry, it link) {
		ino := e.id
		f, seen := first[ino]
		switch {
		case !seen:
			first[ino] = it
		case all[ino] == nil:
			all[ino] = []link{f, it}
		default:
			all[ino] = append(all[ino], it)
		}
	})
	return all, err
}

// eachLink lists the names of all that are no directories in a layer.
func (o *Overlay) eachLink(l *layer, fn func(e rawEntry, it link)) error {
	for dirs := []*obj{rootObj(l)}; len(dirs) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		o.tree.RLock()
		err := dir.backend().list(dir, func(e rawEntry) error {
			switch {
			case e.whiteout:
			case e.typ == unix.S_IFDIR:
				dirs = append(dirs, &obj{layer: l, parent: dir, name: e.name, ino: e.ino})
			default:
				fn(e, link{dir, e.name})
			}
			return nil
		})
		descriptors.drop(dir)
		o.tree.RUnlock()
		if err != nil {
			return o.reportPart(err, dir)
		}
	}
	return nil
}

func (o *Overlay) reportPart(err error, at *obj) error {
	o.tree.RLock()
	defer o.tree.RUnlock()
	return o.report(err, at, "")
}

// groupOf finds the other names under which the overlay shows the file, whose layer counts so many, and brings their directories into the upper.
// The caller holds no lock and calls releaseGroup.
func (o *Overlay) groupOf(top *obj, count uint32) ([]groupName, error) {
	links, ok, err := o.nearLinks(top, int(count))
	if err == nil && !ok {
		links, err = o.linksOf(top)
	}
	if err != nil {
		return nil, err
	}
	var group []groupName
	for _, l := range links {
		dir, err := o.dirOf(l.dir)
		if err != nil {
			o.releaseGroup(group)
			return nil, err
		}
		if dir != nil {
			group = append(group, groupName{dir, l.name})
		}
	}
	for _, g := range group {
		if err := o.copyUp(g.dir, false); err != nil {
			o.releaseGroup(group)
			return nil, err
		}
	}
	return group, nil
}

// namesOf lists a layer for the names of an inode, as linksOf gives them where the layer does not change. The caller holds no lock.
func (o *Overlay) namesOf(top *obj) ([]link, error) {
	var links []link
	err := o.eachLink(top.layer, func(e rawEntry, it link) {
		if e.ino == top.ino { // which may be another file's too: the look-up tells
			links = append(links, it)
		}
	})
	return links, err
}

// findName looks for a name that a file without a known one still has in its layer, and tells whether it has it now.
// The caller holds no lock.
func (o *Overlay) findName(n *node, top *obj) bool {
	links, err := o.namesOf(top)
	if err != nil {
		return false // reported; the copy becomes an orphan
	}
	for _, l := range links {
		dir, err := o.dirOf(l.dir)
		if err != nil || dir == nil {
			continue
		}
		e, err := o.Lookup(dir.id, l.name) // revives n if it is what the name leads to
		if err == nil {
			o.Forget(e.Node, 1)
		}
		o.releaseGroup([]groupName{{dir: dir}})
		if err == nil && e.Node == n.id {
			return true
		}
	}
	return false
}

func (o *Overlay) releaseGroup(group []groupName) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	for _, g := range group {
		o.discard(o.nodes.drop(g.dir, 1, 0))
	}
}

// dirOf finds the directory of the overlay that merges a directory of a layer: nearly always at the same path, else,
// when a directory on the way was renamed, by looking through all directories. It gives nil if there is none, else the
// node with a reference.
func (o *Overlay) dirOf(part *obj) (*node, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n := o.root
	o.nodes.ref(n)
	if path := part.path(); path != "/" {
		for _, name := range strings.Split(path[1:], "/") {
			next, err := o.childDir(n, name)
			o.discard(o.nodes.drop(n, 1, 0))
			if err != nil {
				return nil, err
			}
			if n = next; n == nil {
				break
			}
		}
	}
	if n != nil && n.merges(part) {
		return n, nil
	}
	if n != nil {
		o.discard(o.nodes.drop(n, 1, 0))
	}
	o.nodes.ref(o.root)
	return o.searchDir(o.root, part)
}

// childDir looks a directory up; nil if there is none of that name.
func (o *Overlay) childDir(n *node, name string) (*node, error) {
	_, c, err := o.lookupIn(n.id, name)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !isDir(c.typ) {
		o.discard(o.nodes.drop(c, 1, 0))
		return nil, nil
	}
	return c, nil
}

// searchDir looks for part in n and below. It takes the reference of n that the caller has.
func (o *Overlay) searchDir(n *node, part *obj) (*node, error) {
	if n.merges(part) {
		return n, nil
	}
	defer func() { o.discard(o.nodes.drop(n, 1, 0)) }()
	items, err := o.merge(n.parts())
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		if it.typ != unix.S_IFDIR {
			continue
		}
		c, err := o.childDir(n, it.name)
		if err != nil {
			return nil, err
		}
		if c == nil {
			continue
		}
		if hit, err := o.searchDir(c, part); hit != nil || err != nil {
			return hit, err
		}
	}
	return nil, nil
}

// ref takes one more look-up reference.
func (t *table) ref(n *node) {
	t.mu.Lock()
	n.lookups++
	t.mu.Unlock()
}

// merges tells whether a directory of a layer is one of n's parts.
func (n *node) merges(part *obj) bool {
	return samePlace(n.top, part) || slices.ContainsFunc(n.below, func(p *obj) bool { return samePlace(p, part) })
}

// linkGroup gives n, which has just come into the upper, its other names there too. tree is held for writing.
func (o *Overlay) linkGroup(n *node, old *obj, group []groupName) error {
	for _, g := range group {
		o.nodes.fresh(g.dir)
		if g.dir == n.parent && g.name == n.name || g.dir.dead || !o.inUpper(g.dir) {
			continue
		}
		h, err := o.search(g.dir, 0, g.name)
		if err != nil || !sameInode(h.parts[0], old) {
			continue // it shows another file by now, or none
		}
		if err := o.linkQuietly(n, g); err != nil {
			return fmt.Errorf("link %s: %w", g.name, err)
		}
	}
	return nil
}

// linkQuietly adds a name without a change that callers could see.
func (o *Overlay) linkQuietly(n *node, g groupName) error {
	return o.quietly(g.dir, 0, func(int) error { return o.linkIn(n, g.dir, g.name, false) })
}

// pendingPrefix begins the name in the work directory of a file whose group is just being linked in the upper.
const pendingPrefix = '='

// beginGroup has a crash before done undo what a copy-up linked of a file's names: some names alone would be another file than
// the rest, which the layer below still shows.
func (u *upper) beginGroup(tmp string) (done func(), err error) {
	name := string(pendingPrefix) + tmp
	if err := unix.Linkat(u.work, tmp, u.work, name, 0); err != nil {
		return nil, err
	}
	return func() { _ = unix.Unlinkat(u.work, name, 0) }, nil // it was made just now, in the same directory
}

// undoGroup removes all names that the upper has of a file which a crash left in the work directory.
func (u *upper) undoGroup(pending string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(u.work, pending, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Nlink > 1 {
		if err := unlinkAll(u.store.root, st.Ino); err != nil {
			return err
		}
	}
	return unix.Unlinkat(u.work, pending, 0)
}

// unlinkAll removes the names of an inode everywhere below a directory, whose times stay.
func unlinkAll(dirfd int, ino uint64) error {
	fd, err := openat(dirfd, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	var names, dirs []string
	err = eachName(fd, func(name string, n uint64, typ uint32) error {
		switch {
		case n == ino:
			names = append(names, name)
		case typ == unix.S_IFDIR || typ == 0:
			dirs = append(dirs, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := unix.Unlinkat(fd, name, 0); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		if err := (place{fd, "."}).utimes(st.Atim, st.Mtim); err != nil {
			return err
		}
	}
	for _, name := range dirs {
		sub, err := openat(fd, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue // the host did not tell
		}
		if err != nil {
			return err
		}
		err = unlinkAll(sub, ino)
		_ = unix.Close(sub) // O_PATH
		if err != nil {
			return err
		}
	}
	return nil
}
