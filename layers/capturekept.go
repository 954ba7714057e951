package layers

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// CaptureState is what a capture has found in an upper. A later capture that is given it (StoreOptions.Since) stores only
// what has changed since. It is immutable and safe for concurrent use.
type CaptureState struct {
	root  *keptDir
	names int
}

// Names is how many names it has. Each takes about a hundred bytes of memory.
func (s *CaptureState) Names() int {
	if s == nil {
		return 0
	}
	return s.names
}

// An inode is unchanged if its number, size and change time are, and the change time was such when it was looked at that
// another change gives another one: see seen.go. Nothing else tells: who writes by a shared mapping causes no event before
// the file is closed.

// keptDir is what a capture has found of a directory. It is immutable.
type keptDir struct {
	host     uint64
	born     Time
	opaque   bool
	redirect string
	self     keptStat      // of the directory itself; sure: of what is below, too
	names    []captureName // in byte order
	stats    []keptStat    // of the names
	count    int           // of names here and below
}

// keptStat is what a capture has found of an inode.
type keptStat struct {
	ino   uint64
	ctime int64 // nanoseconds since 1970
	size  int64
	sure  bool // as long as these stay, nothing of it changes, and the image has it
	there bool // else the image does not have the name
	white bool // it is a whiteout
	dir   *keptDir
}

// unchangedEntry is the entry of what has not changed since the last capture, in the lists of a captureDir.
var unchangedEntry = &squashfs.Entry{}

// statOf is what is kept of an inode.
func (c *capture) statOf(a *Attr, white bool) keptStat {
	ctime, ok := nanoseconds(a.Ctime)
	return keptStat{
		ino: a.Ino, ctime: ctime, size: int64(a.Size), there: true, white: white,
		sure: ok && c.exact && (c.fine && a.Ctime.Nsec != 0 || isOld(ctime, c.begun)),
	}
}

// is reports whether an inode is still what it was.
func (k *keptStat) is(sx *unix.Statx_t) bool {
	return sx.Ino == k.ino && int64(sx.Size) == k.size && sx.Ctime.Sec*int64(time.Second)+int64(sx.Ctime.Nsec) == k.ctime
}

// find gives what was found of a name, which is probably the one with this index; nil if it was not there.
func (k *keptDir) find(i int, name string) *keptStat {
	if k == nil {
		return nil
	}
	if i >= len(k.names) || k.names[i].name != name {
		var ok bool
		if i, ok = searchNames(k.names, name); !ok {
			return nil
		}
	}
	if s := &k.stats[i]; s.there {
		return s
	}
	return nil
}

// searchNames finds a name among others in byte order.
func searchNames(names []captureName, name string) (i int, ok bool) {
	return slices.BinarySearchFunc(names, name, func(n captureName, name string) int { return cmp.Compare(n.name, name) })
}

// sameDir reports whether an open directory, with its names, is what the last capture has found, and takes that over.
func (c *capture) sameDir(d *captureDir, fd int) bool {
	k := d.was
	if k == nil || !k.self.sure {
		return false
	}
	var sx unix.Statx_t
	if err := statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &sx); err != nil || !k.self.is(&sx) {
		return false
	}
	d.host = hostAttr(&sx)
	if d.host.Btime != k.born || d.part.parent != nil && d.part.host != k.host {
		return false
	}
	d.found = found{attr: d.host, host: d.host.Ino, opaque: k.opaque, redirect: k.redirect}
	d.names, d.same, d.fresh = k.names, true, false
	d.entry.Name, d.entry.Handle = d.part.name, d
	return true
}

// lookAgain looks at a name that the last capture has found; nil if it has not, or if that may have changed.
func (c *capture) lookAgain(d *captureDir, fd, i int) (*squashfs.Entry, error) {
	name := d.names[i].name
	k := d.was.find(i, name)
	if k == nil || !k.sure && k.dir == nil {
		return nil, nil
	}
	var sx unix.Statx_t
	if err := statx(fd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &sx); err != nil {
		return nil, err
	}
	switch {
	case k.white: // all of them may be names of one inode
		if !isWhiteoutDevice(uint32(sx.Mode), unix.Mkdev(sx.Rdev_major, sx.Rdev_minor)) {
			return nil, nil
		}
	case k.dir != nil:
		if sx.Ino != k.ino || !isDir(uint32(sx.Mode)) {
			return nil, nil
		}
		a := hostAttr(&sx)
		if a.Btime != k.dir.born {
			return nil, nil
		}
		d.stats[i] = c.statOf(&a, false)
		if sub := d.old[name]; sub != nil && sub.part.host == a.Ino && sub.born == a.Btime {
			return sub.entry, nil
		}
		f := found{attr: a, host: a.Ino, opaque: k.dir.opaque, redirect: k.dir.redirect}
		sub := &captureDir{part: d.part.child(name, f), born: a.Btime, entry: &squashfs.Entry{Name: name}, found: f, up: d, was: k.dir}
		sub.entry.Handle = sub
		return sub.entry, nil
	case !k.is(&sx):
		return nil, nil
	}
	d.stats[i] = *k
	return unchangedEntry, nil
}

// state gives what a capture has found that is stored.
func (c *capture) state() *CaptureState {
	if !c.exact || c.root == nil {
		return nil
	}
	root := c.keep(c.root)
	return &CaptureState{root: root, names: root.count}
}

// keep gives what was found of a directory.
func (c *capture) keep(d *captureDir) *keptDir {
	k := &keptDir{
		host: d.host.Ino, born: d.host.Btime, opaque: d.found.opaque, redirect: d.found.redirect, self: c.statOf(&d.host, false),
		names: d.names, stats: d.stats, count: len(d.names),
	}
	same := d.same && d.plan.emit == nil
	for i, e := range d.list {
		switch sub := dirOf(e); {
		case e == nil, sub != nil && sub.gone:
			k.stats[i], same, k.self.sure = keptStat{}, false, false
		case sub != nil:
			dir := c.keep(sub)
			same = same && dir == sub.was
			k.stats[i].dir = dir
			k.count += dir.count
		}
	}
	if same && d.was != nil && d.was.self.sure {
		return d.was
	}
	return k
}
