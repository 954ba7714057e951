package layers

import (
	"errors"
	"fmt"
	"sync"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// group is the names under which the overlay shows a hard-linked file of a lower.
type group struct {
	found foundDirs // of the directories, to be released
	dirs  []groupDir
}

// groupDir is the names in one directory.
type groupDir struct {
	dir   *node
	names []string
}

// link is a name of a hard-linked file inside its layer.
type link struct {
	dir  *part
	name string
}

// groupTables caches which names of a lower layer are hard links of each other. A table is made by one listing of all
// of the layer's directories, when the first hard-linked file of the layer is copied up whose names are not near each
// other.
type groupTables struct {
	mu     lockorder.Mutex[lockorder.GroupTables]
	m      map[*Lower]*groupTable // guarded by mu
	looked map[*Lower]int         // names looked through by nearLinks; guarded by mu
	// Directories that are not where the layer has them, by their paths there; guarded by mu
	moved map[*Lower]map[string]NodeID
}

type groupTable struct {
	once  sync.Once
	links map[uint64][]link // by rawEntry.id; nil if there are too many; immutable after once
	err   error             // immutable after once
}

// groupNames is how many names of a layer a table has at most, of some hundred bytes each. Who made the layer decides how
// many there are: where there are more, the layer is listed again for each file.
var groupNames = 1 << 19

// linksOf gives the names of an inode in its layer. The caller holds no lock.
func (o *Overlay) linksOf(top *part) ([]link, error) {
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
				g.m = map[*Lower]*groupTable{}
			}
			t = &groupTable{}
			g.m[form] = t
		}
		g.mu.Unlock()
		t.once.Do(func() { t.links, t.err = o.scanLinks(top.layer) })
		links, err := t.links[id], t.err
		if err == nil && t.links == nil {
			links, err = o.scanFor(top.layer, id)
		}
		o.tree.RLock()
		replaced := top.layer.lower != form
		o.tree.RUnlock()
		if replaced {
			g.forget(form) // what was listed may be of either form
			continue
		}
		return links, err
	}
}

// forget drops the table of a layer that has left the stack, or has another form now.
func (g *groupTables) forget(l *Lower) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.m, l)
	delete(g.looked, l)
	delete(g.moved, l)
}

// scanLinks lists all directories of a layer and keeps the inodes that occur twice; nil if they have too many names.
func (o *Overlay) scanLinks(l *layer) (map[uint64][]link, error) {
	seen, several := roaring64.New(), roaring64.New()
	err := o.eachLink(l, func(e rawEntry, _ link) {
		if !seen.CheckedAdd(e.id) {
			several.Add(e.id)
		}
	})
	if err != nil {
		return nil, err
	}
	names := 0
	all := map[uint64][]link{}
	err = o.eachLink(l, func(e rawEntry, it link) {
		if !several.Contains(e.id) {
			return
		}
		if names++; names <= groupNames {
			all[e.id] = append(all[e.id], it)
		}
	})
	if names > groupNames {
		all = nil
	}
	return all, err
}

// scanFor lists all directories of a layer for the names of one inode.
func (o *Overlay) scanFor(l *layer, id uint64) ([]link, error) {
	var links []link
	err := o.eachLink(l, func(e rawEntry, it link) {
		if e.id == id {
			links = append(links, it)
		}
	})
	return links, err
}

// eachLink lists the names of all that are no directories in a layer.
func (o *Overlay) eachLink(l *layer, fn func(e rawEntry, it link)) error {
	for dirs := []*part{rootPart(l)}; len(dirs) > 0; {
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		o.tree.RLock()
		err := dir.backend().list(dir, func(e rawEntry) error {
			switch {
			case e.whiteout:
			case e.typ == unix.S_IFDIR:
				dirs = append(dirs, &part{layer: l, parent: dir, name: e.name, ino: e.ino})
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

func (o *Overlay) reportPart(err error, at *part) error {
	o.tree.RLock()
	defer o.tree.RUnlock()
	return o.report(err, at, "")
}

// groupOf finds the names under which the overlay shows the file, whose layer counts so many, and brings their
// directories into the upper, which has room for at most as many names of a file; 0: nobody knows. EMLINK. The caller
// holds no lock and calls releaseDirs.
func (o *Overlay) groupOf(top *part, count, most uint32) (group, error) {
	links, ok, err := o.nearLinks(top, int(count))
	if err == nil && !ok {
		links, err = o.linksOf(top)
	}
	if err == nil && most > 0 && len(links) > int(most) {
		err = unix.EMLINK
	}
	if err != nil {
		return group{}, err
	}
	names := map[*part][]string{}
	var dirs []*part
	for _, l := range links {
		if names[l.dir] == nil {
			dirs = append(dirs, l.dir)
		}
		names[l.dir] = append(names[l.dir], l.name)
	}
	g := group{}
	if g.found, err = o.dirsOf(dirs); err != nil {
		return group{}, err
	}
	for _, at := range dirs {
		dir := g.found[at]
		if dir == nil {
			continue
		}
		if err := o.copyUp(dir, false); err != nil {
			o.releaseDirs(g.found)
			return group{}, err
		}
		g.dirs = append(g.dirs, groupDir{dir, names[at]})
	}
	return g, nil
}

// namesOf lists a layer for the names of an inode, as linksOf gives them where the layer does not change. The caller
// holds no lock.
func (o *Overlay) namesOf(top *part) ([]link, error) {
	var links []link
	err := o.eachLink(top.layer, func(e rawEntry, it link) {
		if e.ino == top.ino { // which may be another file's too: the look-up tells
			links = append(links, it)
		}
	})
	return links, err
}

// lookUp looks names up that a file may have, until one is found which is also enough, and reports whether one was. The
// caller holds no lock.
func (o *Overlay) lookUp(n *node, links []link, enough func(dir *node, name string) bool) (bool, error) {
	dirs := make([]*part, 0, len(links))
	for _, l := range links {
		dirs = append(dirs, l.dir)
	}
	found, err := o.dirsOf(dirs)
	if err != nil {
		return false, err
	}
	defer o.releaseDirs(found)
	for _, l := range links {
		dir := found[l.dir]
		if dir == nil {
			continue
		}
		e, err := o.Lookup(dir.id, l.name)
		if err != nil {
			continue
		}
		if e.Node == n.id {
			n.lock.Lock() // the call that changes it revives it then, if the look-up has not
			o.unlock(n)
		}
		o.Forget(e.Node, 1)
		if e.Node == n.id && enough(dir, l.name) {
			return true, nil
		}
	}
	return false, nil
}

// findName looks for a name that a file without a known one still has in its layer, and reports whether it has it now.
// The caller holds no lock.
func (o *Overlay) findName(n *node, top *part) bool {
	links, err := o.namesOf(top)
	if err != nil {
		return false // reported; the copy becomes an orphan
	}
	found, err := o.lookUp(n, links, func(*node, string) bool { return true })
	return found && err == nil
}

// showing leaves of a group the further names of n that show its part old. tree is held for writing.
func (o *Overlay) showing(n *node, old *part, g group) []groupDir {
	var out []groupDir
	for _, d := range g.dirs {
		o.nodes.refresh(d.dir)
		if d.dir.dead || !o.inUpper(d.dir) {
			continue
		}
		names := make([]string, 0, len(d.names))
		for _, name := range d.names {
			if d.dir == n.parent && name == n.name {
				continue
			}
			if top, err := d.dir.topOf(name); err != nil || top == nil || !sameInode(top, old) {
				continue // it shows another file by now, or none
			}
			names = append(names, name)
		}
		if len(names) > 0 {
			out = append(out, groupDir{d.dir, names})
		}
	}
	return out
}

// topOf gives the topmost part of what a directory shows under a name, without looking for those below; nil if there is
// none. Overlay.tree is held.
func (n *node) topOf(name string) (*part, error) {
	for _, d := range n.parts() {
		f, err := d.backend().find(d, name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || f.whiteout {
			return nil, err
		}
		return d.child(name, f), nil
	}
	return nil, nil
}

// pendingPrefix begins the name in the work directory of a file whose group is just being linked in the upper.
const pendingPrefix = '='

// placeGroup is placeUp for a file with further names, to which it is linked before: some names alone would be another
// file than the rest, which the layer below still shows. What is not placed has none of them in the upper, and after a
// crash New removes those that it has.
func (o *Overlay) placeGroup(n *node, from location, group []groupDir) (placed bool, err error) {
	pending := nameIn(from.dirfd, string(pendingPrefix)+from.name)
	if err := unix.Renameat(from.dirfd, from.name, pending.dirfd, pending.name); err != nil {
		return false, err
	}
	linked := 0 // directories with links, the last one perhaps not with all
	for linked < len(group) && err == nil {
		group[linked].names, err = o.linkNames(pending, group[linked])
		linked++
	}
	if err == nil {
		placed, err = o.placeUp(n, pending)
	}
	if placed {
		return true, err
	}
	for _, d := range group[:linked] {
		if len(d.names) == 0 {
			continue // the host may have refused more than a link
		}
		if uerr := o.unlinkNames(d); uerr != nil {
			return false, errors.Join(err, fmt.Errorf("undo: %w", uerr)) // New does
		}
	}
	return false, errors.Join(err, unix.Unlinkat(pending.dirfd, pending.name, 0))
}

// linkNames gives a file of the work directory names in a directory of the upper, without a change that callers could
// see, and tells which.
func (o *Overlay) linkNames(from location, d groupDir) (linked []string, err error) {
	err = o.keepingTimes(d.dir, "", 0, func(dirfd int) error {
		if err := nameIn(dirfd, ".").setxattr(xattrImpure, []byte("y"), 0); err != nil {
			return err
		}
		for i, name := range d.names {
			if err := unix.Linkat(from.dirfd, from.name, dirfd, name, 0); err != nil {
				return fmt.Errorf("link %s: %w", name, err)
			}
			linked = d.names[:i+1]
		}
		return nil
	})
	return linked, err
}

// unlinkNames takes names away in the same way.
func (o *Overlay) unlinkNames(d groupDir) error {
	return o.keepingTimes(d.dir, "", 0, func(dirfd int) error {
		for _, name := range d.names {
			if err := unix.Unlinkat(dirfd, name, 0); err != nil {
				return fmt.Errorf("unlink %s: %w", name, err)
			}
		}
		return nil
	})
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
		if err := nameIn(fd, ".").utimes(st.Atim, st.Mtim); err != nil {
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
