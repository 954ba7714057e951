package squashfs

import (
	"bytes"
	"slices"
	"strings"
)

// maxShownPath keeps paths short in reports and in memory: only the last parts of a deeper path are shown.
const maxShownPath = 4096

func join(dir, name string) string {
	p := name
	if dir != "" {
		p = dir + "/" + name
	}
	if cut := len(p) - maxShownPath; cut > 0 {
		p = "…" + p[cut+strings.IndexByte(p[cut:]+"/", '/'):]
	}
	return p
}

// unlisted is a directory that is not listed yet. It knows its path by the directories above, which share theirs.
type unlisted struct {
	inode int // index in checker.inodes
	name  string
	above *unlisted // nil: the root
}

// path is built when the directory is listed, from its end.
func (u *unlisted) path() string {
	var parts []string
	n := 0
	for ; u.above != nil && n <= maxShownPath; u = u.above {
		parts = append(parts, u.name)
		n += 1 + len(u.name)
	}
	slices.Reverse(parts)
	return join("", strings.Join(parts, "/"))
}

// tree follows every name from the root. Each inode is checked when its first name is found, and a directory is listed
// once, so that loops end. If listings together are longer than their table, they overlap, and the rest is not read.
func (c *checker) tree() error {
	im := c.im
	root, ok := c.find(im.Root())
	if !ok {
		c.bad("", corrupt(sbRoot, "root %#x is no inode", uint64(im.Root())))
		return nil
	}
	if c.inodes[root].typ != typeDir {
		c.bad("", corrupt(sbRoot, "root is no directory"))
		return nil
	}
	c.inodes[root].names = 1
	budget, err := im.unpacked(im.dirs)
	if err != nil {
		return c.failed("", err)
	}
	if err := c.inode("", im.Root()); err != nil {
		return err
	}
	for stack := []*unlisted{{inode: root}}; len(stack) > 0; {
		if err := c.stop(); err != nil {
			return err
		}
		dir := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		n := new(Inode)
		err := im.parse(n, c.refs[dir.inode])
		if err == nil {
			err = n.check()
		}
		if err != nil {
			continue // reported when its name was found
		}
		if budget -= n.listing(); budget < 0 {
			c.bad(dir.path(), corrupt(n.location(), "directory listings overlap, the rest is not read"))
			return nil
		}
		path := dir.path()
		subs, err := c.listing(dir, path, n)
		if err := c.failed(path, err); err != nil {
			return err
		}
		stack = append(stack, subs...)
	}
	return nil
}

// listing checks one directory and returns the directories in it that are to be listed next. An error means that the
// rest of the listing cannot be read.
func (c *checker) listing(dir *unlisted, at string, n *Inode) ([]*unlisted, error) {
	w, err := n.walkDir(nil)
	if err != nil {
		return nil, err
	}
	var index []indexEntry
	if n.raw.indexes > 0 {
		list, err := n.loadIndex()
		if err != nil {
			if err := c.failed(at, err); err != nil {
				return nil, err
			}
		} else {
			index = list[1:] // the first is the listing's start
		}
	}
	var subs []*unlisted
	var last []byte
	for {
		if err := c.stop(); err != nil {
			return nil, err
		}
		head, fresh := n.listing()-w.left, w.run == 0
		e, ok, err := w.next()
		if err != nil || !ok {
			if len(index) > 0 && err == nil {
				c.bad(at, corrupt(n.location(), "directory index entry %q points inside a run", index[0].name))
			}
			return subs, err
		}
		if fresh && len(index) > 0 && index[0].before <= head {
			if x := index[0]; x.before != head || x.name != string(e.name) {
				c.bad(at, corrupt(n.location(), "directory index says %q where %q is", x.name, e.name))
			}
			index = index[1:]
		}
		path := join(at, string(e.name))
		if bytes.Compare(last, e.name) >= 0 {
			c.bad(path, w.unsorted(e.name))
		}
		last = e.name
		sub, err := c.name(path, dir, w.c.at, e)
		if err != nil {
			return subs, err
		}
		if sub != nil {
			subs = append(subs, sub)
		}
	}
}

// name checks one name. If it is the first name of a directory, it returns the directory to be listed.
func (c *checker) name(path string, dir *unlisted, at int64, e listed) (*unlisted, error) {
	i, ok := c.find(e.ref)
	if !ok {
		if !c.cut {
			c.bad(path, corrupt(at, "entry points at %#x, where no inode is", uint64(e.ref)))
		}
		return nil, nil //nolint:nilnil // nothing to list
	}
	n := &c.inodes[i]
	if n.typ != e.typ {
		c.bad(path, corrupt(at, "entry of type %d, inode of type %d", e.typ, n.typ))
	}
	if n.number != e.number {
		c.bad(path, corrupt(at, "entry of inode %d, inode has number %d", e.number, n.number))
	}
	n.names++
	if n.typ == typeDir {
		c.inodes[dir.inode].subs++
		if n.names > 1 {
			c.bad(path, corrupt(at, "directory has more than one name, or contains itself"))
			return nil, nil //nolint:nilnil // nothing to list
		}
		if parent := c.inodes[dir.inode].number; n.parent != parent {
			c.bad(path, corrupt(c.location(i), "directory has parent inode %d and is found in %d", n.parent, parent))
		}
	}
	if n.names > 1 {
		return nil, nil //nolint:nilnil // nothing to list
	}
	if err := c.inode(path, e.ref); err != nil || n.typ != typeDir {
		return nil, err
	}
	return &unlisted{i, string(e.name), dir}, nil
}

// links compares link counts with the names found. For directories, some writers count entries, some subdirectories,
// and some nothing.
func (c *checker) links() error {
	if c.cut {
		return nil
	}
	for i, n := range c.inodes {
		switch {
		case n.names == 0:
			c.bad("", corrupt(c.location(i), "inode %d has no name", n.number))
		case n.typ != typeDir && n.nlink != n.names:
			c.bad("", corrupt(c.location(i), "inode %d has link count %d and %d names", n.number, n.nlink, n.names))
		case n.typ == typeDir && n.nlink == 0:
			c.bad("", corrupt(c.location(i), "directory inode %d has link count 0", n.number))
		}
	}
	return nil
}
