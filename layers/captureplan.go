package layers

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/squashfs"
)

// A capture that is given the state of the last one makes an image over that: what has changed, and whiteouts for what has
// gone. Directories that stayed are merged with those of the last capture, which say themselves what of the layers below
// shows through; new ones hide what the last capture has there. Directories that were renamed and show what is below, and
// a few other changes, cannot be told this way: then all of the upper is captured.

// errWhole says that the image must be of the whole upper.
var errWhole = errors.New("what has changed cannot be told by a layer over the last capture")

// dirPlan is what an image over the last capture has of a directory.
type dirPlan struct {
	emit []string // names with what has changed
	gone []string // names that the last capture has and the upper has not, in byte order
}

// planChanges decides what the image has. It reports whether nothing has changed.
func (c *capture) planChanges() (same bool, err error) {
	c.links = map[uint64]uint32{}
	needed, err := c.planDir(c.root)
	if err != nil {
		return false, err
	}
	for _, missing := range c.links {
		if missing != 0 { // it would be two files
			return false, errWhole
		}
	}
	return !needed, nil
}

// planDir is planChanges for a directory and what is in it. It reports whether the image has it.
func (c *capture) planDir(d *captureDir) (needed bool, err error) {
	if d.was != nil && (d.found.redirect != d.was.redirect || d.found.opaque != d.was.opaque) {
		return false, errWhole
	}
	d.plan = dirPlan{}
	for i, e := range d.list {
		emit := e != nil && e != unchangedEntry
		if sub := dirOf(e); sub != nil {
			if sub.gone {
				continue
			}
			if emit, err = c.planSubdir(d, i, sub); err != nil {
				return false, err
			}
		} else if emit {
			if isMetacopy(e) {
				return false, errWhole
			}
			c.countNames(d.stats[i], e)
		}
		if emit {
			d.plan.emit = append(d.plan.emit, d.names[i].name)
		}
	}
	if err := d.planGone(); err != nil {
		return false, err
	}
	if d.same && len(d.plan.emit)+len(d.plan.gone) == 0 {
		return false, nil
	}
	if d.same {
		if err := c.describeSame(d); err != nil {
			return false, err
		}
	}
	if d.was != nil {
		d.entry.Xattrs = slices.DeleteFunc(d.entry.Xattrs, func(x squashfs.Xattr) bool {
			return x.Name == xattrOpaque || x.Name == xattrRedirect
		})
	}
	return true, nil
}

// planSubdir is planDir for the directory that has a name in another one.
func (c *capture) planSubdir(d *captureDir, i int, sub *captureDir) (needed bool, err error) {
	if needed, err = c.planDir(sub); err != nil || sub.was != nil {
		return needed, err
	}
	if sub.found.redirect != "" {
		return false, errWhole
	}
	if d.was.find(i, d.names[i].name) == nil || sub.found.opaque {
		return true, nil
	}
	below, err := c.belowOf(sub)
	if err != nil {
		return false, err
	}
	if len(below) > 0 {
		return false, errWhole
	}
	sub.entry.Xattrs = append(sub.entry.Xattrs, squashfs.Xattr{Name: xattrOpaque, Value: []byte("y")})
	return true, nil
}

// countNames counts the names of an inode that the image has.
func (c *capture) countNames(s keptStat, e *squashfs.Entry) {
	if e.Attr.Nlink < 2 || s.white {
		return
	}
	if _, ok := c.links[s.ino]; !ok {
		c.links[s.ino] = e.Attr.Nlink
	}
	c.links[s.ino]--
}

// planGone finds the names that have gone.
func (d *captureDir) planGone() error {
	if d.was == nil {
		return nil
	}
	i := 0
	for k := range d.was.names {
		name := d.was.names[k].name
		was := &d.was.stats[k]
		if !was.there {
			continue
		}
		for i < len(d.names) && d.names[i].name < name {
			i++
		}
		if i < len(d.names) && d.names[i].name == name && d.list[i] != nil {
			if sub := dirOf(d.list[i]); sub == nil || !sub.gone {
				continue
			}
		}
		if was.white { // what it hid is to be seen, which the last capture hides
			return errWhole
		}
		d.plan.gone = append(d.plan.gone, name)
	}
	return nil
}

// describeSame describes a directory that stayed as it was, but for what is in it.
func (c *capture) describeSame(d *captureDir) error {
	p, h, err := c.upper.at(d.part)
	if err == nil {
		defer h.release()
		var f found
		var a Attr
		if a, err = c.describe(p, d.entry, &f); err == nil && a.Ino != d.host.Ino {
			err = unix.ENOENT
		}
		if f.redirect != d.found.redirect || f.opaque != d.found.opaque {
			return errWhole
		}
	}
	if hasGone(err) {
		return errWhole
	}
	if err != nil {
		return err
	}
	d.entry.Handle = d
	if d.up == nil {
		d.entry.Attr.Ino = rootIno
	}
	return c.countLinks(d)
}

// inLast is the file that the last capture, or what is below it, has in place of one; nil if there is none.
func (c *capture) inLast(d *captureDir, name string) *part {
	at := c.last.o.root
	for _, step := range d.steps(nil) {
		h, err := c.last.o.search(at, 0, step)
		if err != nil || !isDir(h.attr.Mode) {
			return nil
		}
		at = &node{top: h.parts[0], below: h.parts[1:], typ: unix.S_IFDIR}
	}
	h, err := c.last.o.search(at, 0, name)
	if err != nil || !isReg(h.attr.Mode) {
		return nil
	}
	return h.parts[len(h.parts)-1]
}

// steps appends the names on the path to a directory.
func (d *captureDir) steps(list []string) []string {
	if d.up == nil {
		return list
	}
	return append(d.up.steps(list), d.part.name)
}
