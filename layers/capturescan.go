package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// captureDir is a directory that is being captured.
type captureDir struct {
	part  *part
	born  Time            // with part.host, which directory it is; immutable
	entry *squashfs.Entry // its Handle is this
	found found
	up    *captureDir // that it is in; nil of the root
	below belowDir    // what the layers below have in its place
	// host is what the host said of it before its names were read; fresh, that its ctime was so young then that it does
	// not tell about another change.
	host   Attr
	fresh  bool
	names  []captureName     // in byte order; immutable
	list   []*squashfs.Entry // of the names; nil: it vanished; unchangedEntry: it is what was has
	stats  []keptStat        // of the names
	next   int               // index of the name that was asked for last
	listed bool              // names and list are what was found
	gone   bool              // it was not there any more

	old map[string]*captureDir // what was in it when it was looked at the last time

	was  *keptDir // what the last capture has of it; nil: nothing
	same bool     // it has the attributes and the names of was
	plan dirPlan
}

// belowDir finds what the layers below have in place of a directory when that is asked for. It is safe for concurrent
// use.
type belowDir struct {
	once  sync.Once
	parts []*part
	err   error
}

// belowOf gives what the layers below have in place of a directory.
func (c *capture) belowOf(d *captureDir) ([]*part, error) {
	d.below.once.Do(func() {
		if d.up == nil {
			d.below.parts = c.o.root.below
			return
		}
		up, err := c.belowOf(d.up)
		if err == nil {
			d.below.parts, err = c.o.belowOf(d.up.part, up, d.part.name, d.found)
		}
		d.below.err = err
	})
	return d.below.parts, d.below.err
}

// captureName is what a directory says of a name.
type captureName struct {
	name string
	ino  uint64
	typ  uint32
}

// captureFile is the Handle of a regular file that is to be read: contents that were read along with the names, or nil.
type captureFile struct{ whole *wholeContents }

// scan looks at all names until no directory has changed meanwhile, a bounded number of times.
func (c *capture) scan(ctx context.Context) error {
	c.root = &captureDir{part: c.o.root.top, entry: &squashfs.Entry{}}
	if c.since != nil {
		c.root.was = c.since.root
	}
	changed := []*captureDir{c.root}
	for round := 0; ; round++ {
		if err := c.look(ctx, changed); err != nil {
			return err
		}
		all := c.root.all(nil)
		moved := make([]bool, len(all))
		err := atOnce(ctx, len(all), func(i int) (err error) {
			moved[i], err = c.changed(all[i])
			return err
		})
		if err != nil {
			return err
		}
		changed = changed[:0]
		for i, d := range all {
			if moved[i] {
				changed = append(changed, d)
			}
		}
		if c.told.Quiet = len(changed) == 0; c.told.Quiet || round == captureRounds {
			c.single(all)
			return nil
		}
	}
}

// all appends a directory, and those in it.
func (d *captureDir) all(list []*captureDir) []*captureDir {
	list = append(list, d)
	for i := len(list) - 1; i < len(list); i++ {
		for _, e := range list[i].list {
			if sub := dirOf(e); sub != nil && !sub.gone {
				list = append(list, sub)
			}
		}
	}
	return list
}

// single leaves out each place of a directory but one: it was found in two if it was moved meanwhile, and is where it
// was found last.
func (c *capture) single(all []*captureDir) {
	at := map[uint64]*captureDir{}
	for _, d := range all {
		was := at[d.host.Ino]
		at[d.host.Ino] = d
		if was == nil {
			continue
		}
		if here, err := c.isAt(was); err == nil && here {
			at[d.host.Ino], was = was, d
		}
		was.gone = true
	}
}

// isAt reports whether a directory has the name that it was found under.
func (c *capture) isAt(d *captureDir) (bool, error) {
	p, h, err := c.upper.at(d.part)
	if err != nil {
		return false, err
	}
	defer h.release()
	a, err := p.hostStat()
	return err == nil && a.Ino == d.host.Ino, nil
}

// changed reports whether names in a directory, or its attributes, may have changed since they were read.
func (c *capture) changed(d *captureDir) (bool, error) {
	p, h, err := c.upper.at(d.part)
	if err != nil {
		return hasGone(err), unlessGone(err)
	}
	defer h.release()
	a, err := p.hostStat()
	if err != nil {
		return hasGone(err), unlessGone(err)
	}
	if a.Ino != d.host.Ino || a.Ctime != d.host.Ctime {
		return true, nil
	}
	if !d.fresh {
		return false, nil
	}
	now, err := namesOf(p)
	if err != nil {
		return hasGone(err), unlessGone(err)
	}
	return !slices.Equal(now, d.names), nil
}

// look reads directories, and all that is in them and was not read before.
func (c *capture) look(ctx context.Context, dirs []*captureDir) error {
	type chunk struct {
		dir      *captureDir
		from, to int
	}
	for _, d := range dirs {
		d.keepOld()
	}
	for len(dirs) > 0 {
		if err := atOnce(ctx, len(dirs), func(i int) error { return c.list(dirs[i]) }); err != nil {
			return err
		}
		var chunks []chunk
		for _, d := range dirs {
			if len(d.names) <= captureChunk {
				continue
			}
			for from := 0; from < len(d.names); from += captureChunk {
				chunks = append(chunks, chunk{d, from, min(from+captureChunk, len(d.names))})
			}
		}
		err := atOnce(ctx, len(chunks), func(i int) error {
			h, err := c.upper.dir(chunks[i].dir.part)
			if err != nil {
				return unlessGone(err)
			}
			defer h.release()
			return c.lookAt(chunks[i].dir, h.fd, chunks[i].from, chunks[i].to)
		})
		if err != nil {
			return err
		}
		var next []*captureDir
		for _, d := range dirs {
			d.old = nil
			for _, e := range d.list {
				if sub := dirOf(e); sub != nil && !sub.listed {
					next = append(next, sub)
				}
			}
		}
		dirs = next
	}
	return nil
}

// dirOf is the directory of an entry; nil if it is none.
func dirOf(e *squashfs.Entry) *captureDir {
	if e == nil {
		return nil
	}
	d, _ := e.Handle.(*captureDir)
	return d
}

// keepOld notes what was in a directory before it is read again.
func (d *captureDir) keepOld() {
	d.old = map[string]*captureDir{}
	for i, e := range d.list {
		if sub := dirOf(e); sub != nil && !sub.gone {
			d.old[d.names[i].name] = sub
		}
	}
}

// list reads a directory's attributes and names.
func (c *capture) list(d *captureDir) error {
	was := d.found
	d.names, d.list, d.stats, d.listed, d.gone, d.same = nil, nil, nil, true, false, false
	d.below = belowDir{}
	err := c.listOpen(d, was)
	if hasGone(err) {
		d.gone = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.part.path(), err)
	}
	return nil
}

// listOpen is list, which also looks at the names of a small directory.
func (c *capture) listOpen(d *captureDir, was found) error {
	p, h, err := c.upper.at(d.part)
	if err != nil {
		return err
	}
	defer h.release()
	fd, err := openDir(p)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	now := coarseNow()
	if c.sameDir(d, fd) {
		return c.lookAtAll(d, fd)
	}
	d.entry.Name = d.part.name
	if d.host, err = c.describe(nameIn(fd, "."), d.entry, &d.found); err != nil {
		return err
	}
	d.entry.Handle = d
	if d.part.parent == nil {
		d.entry.Attr.Ino = rootIno
	} else if d.host.Ino != d.part.host {
		return unix.ENOENT // another one has its name now
	}
	ctime, ok := nanoseconds(d.host.Ctime)
	d.fresh = !ok || ctime >= now
	if d.names, err = namesIn(fd); err != nil {
		return err
	}
	if was.redirect != d.found.redirect || was.opaque != d.found.opaque {
		d.old = nil // other directories below
	}
	if err := c.countLinks(d); err != nil {
		return err
	}
	return c.lookAtAll(d, fd)
}

// lookAtAll makes room for what is found of the names of a directory. In a small one, it looks at them.
func (c *capture) lookAtAll(d *captureDir, fd int) error {
	d.list, d.stats = make([]*squashfs.Entry, len(d.names)), make([]keptStat, len(d.names))
	if len(d.names) > captureChunk {
		return nil
	}
	return c.lookAt(d, fd, 0, len(d.names))
}

// countLinks counts the links of a directory. What FUSE may have noted of a merged one is from before.
func (c *capture) countLinks(d *captureDir) error {
	d.entry.Links = d.entry.Attr.Nlink
	below, err := c.belowOf(d)
	if err != nil || len(below) == 0 {
		return err
	}
	hidden, own := make([]string, len(d.names)), uint32(0)
	for i, n := range d.names {
		if hidden[i] = n.name; isDir(n.typ) {
			own++
		}
	}
	subs, err := c.o.subdirsBelow(below, hidden)
	d.entry.Links = 2 + own + subs
	return err
}

// openDir opens a directory for reading.
func openDir(p location) (int, error) {
	return openat(p.dirfd, p.name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOATIME, 0)
}

// namesOf lists a directory in byte order.
func namesOf(p location) ([]captureName, error) {
	fd, err := openDir(p)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return namesIn(fd)
}

// namesIn is namesOf for a directory that was just opened.
func namesIn(fd int) ([]captureName, error) {
	var list []captureName
	err := eachNameOf(fd, func(name string, ino uint64, typ uint32) error {
		list = append(list, captureName{name, ino, typ})
		return nil
	})
	slices.SortFunc(list, func(a, b captureName) int { return cmp.Compare(a.name, b.name) })
	return list, err
}

// lookAt looks at some names of a directory.
func (c *capture) lookAt(d *captureDir, fd, from, to int) error {
	var room []squashfs.Entry
	for i := from; i < to; i++ {
		e, err := c.lookAgain(d, fd, i)
		if e == nil && err == nil {
			if len(room) == 0 {
				room = make([]squashfs.Entry, to-i)
			}
			e, err = c.lookAtName(d, fd, i, &room[0])
			room = room[1:]
		}
		if hasGone(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s/%s: %w", d.part.path(), d.names[i].name, err)
		}
		d.list[i] = e
	}
	return nil
}

// lookAtName looks at one name, for whose entry there is room.
func (c *capture) lookAtName(d *captureDir, fd, i int, e *squashfs.Entry) (*squashfs.Entry, error) {
	name := d.names[i].name
	e.Name = name
	var f found
	a, err := c.describe(nameIn(fd, name), e, &f)
	if err != nil {
		return nil, err
	}
	d.stats[i] = c.statOf(&a, f.whiteout)
	switch {
	case isDir(a.Mode):
		if sub := d.old[name]; sub != nil && sub.part.host == a.Ino && sub.born == a.Btime {
			return sub.entry, nil // it is looked at by itself
		}
		e.Handle = &captureDir{part: d.part.child(name, f), born: a.Btime, entry: e, found: f, up: d}
	case isReg(a.Mode) && e.Handle == nil:
		file := &captureFile{}
		e.Handle = file
		if n := int64(a.Size); n > 0 {
			d.stats[i].sure = false // until it is read
			if n > captureWhole || f.metacopy {
				return e, nil
			}
			if c.room.Add(-n) < 0 {
				c.room.Add(n)
				return e, nil // it is read later
			}
			if file.whole, err = c.readWhole(fd, name); errors.Is(err, errTooLong) {
				return e, nil
			}
		}
	}
	return e, err
}

// describe fills in what the image has of an inode. A file that was noted, and has not changed since, gets its note as
// Handle. It gives the host's attributes.
func (c *capture) describe(p location, e *squashfs.Entry, f *found) (Attr, error) {
	for try := 1; ; try++ {
		var sx unix.Statx_t
		flags, name := unix.AT_SYMLINK_NOFOLLOW, p.name
		if name == "" || name == "." {
			flags, name = unix.AT_EMPTY_PATH, ""
		}
		const mask = unix.STATX_BASIC_STATS | unix.STATX_BTIME
		if err := statx(p.dirfd, name, flags, mask, &sx); err != nil {
			return Attr{}, err
		}
		a := hostAttr(&sx)
		*f = found{attr: a, host: a.Ino}
		var err error
		if f.attr.Ino, err = c.upper.number(a.Ino); err != nil {
			return Attr{}, err
		}
		e.Xattrs, e.Target, e.Handle, e.Inode = nil, "", nil, squashfs.InodeID{}
		if a.Nlink > 1 && !isDir(a.Mode) {
			e.Inode = squashfs.InodeID{Layer: 1, Inode: a.Ino}
		}
		if c.recaller != nil && isReg(a.Mode) {
			if known, bare := c.recall(&sx, &a); known != nil {
				if e.Handle = known; bare {
					e.Attr = imageOf(f.attr)
					return a, nil
				}
			}
		}
		if f.whiteout = isWhiteoutDevice(a.Mode, a.Rdev); f.whiteout {
			e.Attr = imageOf(f.attr)
			return a, nil
		}
		looked, err := c.describeMore(p, e, f)
		if err != nil {
			return Attr{}, err
		}
		if !looked || try == captureTries {
			return a, nil
		}
		if now, err := p.hostStat(); err == nil && now.Ino == a.Ino && now.Ctime == a.Ctime {
			return a, nil
		}
	}
}

// recall finds the contents of a file that was noted, and has not changed since, in the store. bare: it has no extended
// attributes.
func (c *capture) recall(sx *unix.Statx_t, a *Attr) (known *knownFile, bare bool) {
	seen := c.recaller.asListed(sx, a)
	if seen == nil {
		return nil, false
	}
	known, ok := c.recaller.recall(seen.file, seen.note)
	if !ok {
		return nil, false
	}
	return known, seen.bare()
}

// describeMore is the part of describe that looks at attributes. It reports whether there are any.
func (c *capture) describeMore(p location, e *squashfs.Entry, f *found) (bool, error) {
	names, err := p.listxattr()
	if err != nil {
		return false, err
	}
	var all []squashfs.Xattr
	for _, name := range names {
		if kernelOnly(name) {
			continue
		}
		value, err := p.getxattr(name)
		if errors.Is(err, unix.ENODATA) {
			continue
		}
		if err != nil {
			return false, err
		}
		if ownXattr(name) {
			if name == xattrFar || name == xattrBlocks {
				return false, errors.New("a file that the kernel's overlayfs does not understand")
			}
			f.note(name, value)
		}
		all = append(all, squashfs.Xattr{Name: name, Value: value})
	}
	if f.redirect != "" {
		if err := checkRedirect(f.redirect); err != nil {
			return false, err
		}
	}
	e.Attr = imageOf(f.attr)
	e.Xattrs = keptXattrs(e, *f, all)
	if isLnk(f.attr.Mode) {
		e.Target, err = p.readlink()
		return true, err
	}
	return len(names) > 0, err
}

// hasGone reports whether an error says that a name went away, or became something else.
func hasGone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ESTALE)
}

func unlessGone(err error) error {
	if hasGone(err) {
		return nil
	}
	return err
}
