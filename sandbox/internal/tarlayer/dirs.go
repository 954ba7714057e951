package tarlayer

import (
	"container/list"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
)

// maxDirs is how many directories are known by path. Their times are set when they are not any more: making a name in a
// directory changes them.
const maxDirs = 256

// maxFollowed bounds the symbolic links on the way to one name, as the kernel does.
const maxFollowed = 40

// dir is a directory of the upper that was used lately.
type dir struct {
	path    string // without symbolic links
	node    layers.NodeID
	times   times
	touched bool // times are those that it is to have, and may not be those that it has
	known   bool // times are those that it has, or is to have
	at      *list.Element
}

// dirs are the directories last used, each with a reference to its node.
type dirs struct {
	of     map[string]*dir
	order  list.List // the one used last is the last
	forget func(d *dir) error
	err    error // the first one of forget
}

func (s *dirs) get(path string) (*dir, bool) {
	d := s.of[path]
	if d == nil {
		return nil, false
	}
	s.order.MoveToBack(d.at)
	return d, true
}

func (s *dirs) add(d *dir) {
	if s.of == nil {
		s.of = map[string]*dir{}
	}
	s.of[d.path] = d
	d.at = s.order.PushBack(d)
	for s.order.Len() > maxDirs {
		oldest := s.order.Front().Value.(*dir)
		if oldest.path == "" { // the root stays
			s.order.MoveToBack(oldest.at)
			continue
		}
		s.drop(oldest)
	}
}

// open adds a directory that was looked up or made, whose reference passes to s.
func (s *dirs) open(path string, e layers.Entry) *dir {
	if d, ok := s.get(path); ok {
		s.err = errors.Join(s.err, s.forget(&dir{path: path, node: e.Node})) // one reference too many
		return d
	}
	d := &dir{path: path, node: e.Node, times: times{e.Attr.Atime, e.Attr.Mtime}, known: true}
	s.add(d)
	return d
}

func (s *dirs) drop(d *dir) {
	delete(s.of, d.path)
	s.order.Remove(d.at)
	s.err = errors.Join(s.err, s.forget(d))
}

// dropBelow drops a directory and those in it: they are about to be removed.
func (s *dirs) dropBelow(path string) {
	for p, d := range s.of {
		if p == path || strings.HasPrefix(p, path+"/") {
			s.drop(d)
		}
	}
}

// clear drops all.
func (s *dirs) clear() error {
	for s.order.Len() > 0 {
		s.drop(s.order.Back().Value.(*dir))
	}
	return s.err
}

// leave gives a directory the times that it is to have, and its reference back.
func (u *unpacker) leave(d *dir) error {
	var err error
	if d.touched {
		_, err = u.o.SetAttr(u.caller, d.node, layers.SetAttr{
			Valid: layers.SetAtime | layers.SetMtime, Atime: d.times.access, Mtime: d.times.change,
		})
	}
	if d.node != layers.RootNode {
		u.o.Forget(d.node, 1)
	}
	return err
}

// touch notes that a name in a directory is about to change.
func (u *unpacker) touch(d *dir) error {
	if !d.touched && !d.known {
		a, err := u.o.GetAttr(d.node)
		if err != nil {
			return err
		}
		d.times = times{a.Atime, a.Mtime}
	}
	d.touched, d.known = true, true
	return u.dirs.err
}

// directory gives the directory that a path leads to, and makes what is missing on the way, with the times t where the
// layers below have no such directory. Symbolic links are followed inside of the layer; followed were already.
func (u *unpacker) directory(path string, t times, followed int) (*dir, error) {
	if d, ok := u.dirs.get(path); ok {
		return d, nil
	}
	d, _ := u.dirs.get("")
	names := strings.Split(path, "/")
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		next, err := u.step(d, name, t)
		if err != nil {
			return nil, err
		}
		if next.target == "" {
			d = next.dir
			continue
		}
		if followed++; followed > maxFollowed {
			return nil, fmt.Errorf("%w: too many symbolic links on the way", api.ErrInvalid)
		}
		if d, err = u.follow(d, next.target, t, &followed); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// next is what a name leads to on the way: a directory, or to where a symbolic link leads.
type next struct {
	dir    *dir
	target string
}

// step goes from a directory to one in it.
func (u *unpacker) step(d *dir, name string, t times) (next, error) {
	at := join(d.path, name)
	if sub, ok := u.dirs.get(at); ok {
		return next{dir: sub}, nil
	}
	if len(at) > maxPath {
		return next{}, fmt.Errorf("%w: a path of %d bytes", api.ErrInvalid, len(at))
	}
	e, err := u.lookup(d.node, name)
	if errors.Is(err, unix.ENOENT) {
		sub, err := u.implicit(d, name, t)
		return next{dir: sub}, err
	}
	if err != nil {
		return next{}, err
	}
	switch e.Attr.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return next{dir: u.dirs.open(at, e)}, nil
	case unix.S_IFLNK:
		defer u.o.Forget(e.Node, 1)
		target, err := u.o.Readlink(e.Node)
		return next{target: target}, err
	}
	u.o.Forget(e.Node, 1)
	return next{}, fmt.Errorf("%w: %s is no directory", api.ErrInvalid, api.Quoted(at))
}

// follow goes from a directory to where the target of a symbolic link in it leads.
func (u *unpacker) follow(d *dir, target string, t times, followed *int) (*dir, error) {
	if strings.HasPrefix(target, "/") {
		d, _ = u.dirs.get("")
	}
	for _, name := range strings.Split(target, "/") {
		switch name {
		case "", ".":
			continue
		case "..":
			up, _ := split(d.path)
			var err error
			if d, err = u.directory(up, t, *followed); err != nil {
				return nil, err
			}
			continue
		}
		n, err := u.step(d, name, t)
		if err != nil {
			return nil, err
		}
		if n.target == "" {
			d = n.dir
			continue
		}
		if *followed++; *followed > maxFollowed {
			return nil, fmt.Errorf("%w: too many symbolic links on the way", api.ErrInvalid)
		}
		if d, err = u.follow(d, n.target, t, followed); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// implicit makes a directory that the layer does not list: as the layers below have it, or a plain one.
func (u *unpacker) implicit(d *dir, name string, t times) (*dir, error) {
	if err := u.count(); err != nil {
		return nil, err
	}
	if err := u.touch(d); err != nil {
		return nil, err
	}
	e, err := u.make(d.node, name, unix.S_IFDIR, 0, "")
	if err != nil {
		return nil, err
	}
	sub := u.dirs.open(path.Join(d.path, name), e)
	f, err := u.below(sub.path)
	if err != nil {
		return nil, err
	}
	if f != nil && f.Mode&unix.S_IFMT == unix.S_IFDIR {
		return sub, u.likeBelow(sub, f)
	}
	return sub, u.set(sub.node, sub, inode{mode: 0o755, times: t})
}

// likeBelow gives a directory the attributes that it has below.
func (u *unpacker) likeBelow(d *dir, f *layers.TreeFile) error {
	xattrs, err := f.Xattrs()
	if err != nil {
		return err
	}
	return u.set(d.node, d, inode{
		uid: f.UID, gid: f.GID, mode: f.Mode & 0o7777, times: times{f.Atime, f.Mtime}, xattrs: xattrs,
	})
}

// remove removes what has a name in a directory, with all that is in it.
func (u *unpacker) remove(d *dir, name string, isDir bool) error {
	if err := u.touch(d); err != nil {
		return err
	}
	if !isDir {
		return u.o.Unlink(d.node, name)
	}
	at := join(d.path, name)
	u.dirs.dropBelow(at)
	// Depth first, without a stack of the process's own: a tree may be of any depth.
	for {
		deepest, err := u.deepest(d.node, name)
		if err != nil {
			return err
		}
		if err := u.o.Rmdir(deepest.parent, deepest.name); err != nil {
			return err
		}
		u.o.ForgetAll(deepest.refs)
		if len(deepest.refs) == 0 {
			return nil
		}
	}
}

// emptied is a directory in which nothing is left.
type emptied struct {
	parent layers.NodeID
	name   string
	refs   []layers.Forgotten // of those on the way
}

// deepest goes down from a name to a directory without directories, and removes all else on the way.
func (u *unpacker) deepest(parent layers.NodeID, name string) (emptied, error) {
	at := emptied{parent: parent, name: name}
	for {
		if err := u.ctx.Err(); err != nil {
			return at, err
		}
		e, err := u.lookup(at.parent, at.name)
		if err != nil {
			return at, err
		}
		var files []string
		sub := ""
		err = u.o.ReadDir(e.Node, 0, func(x layers.DirEntry) bool {
			switch {
			case x.Name == "." || x.Name == "..":
			case x.Mode&unix.S_IFMT == unix.S_IFDIR:
				sub = x.Name
			default:
				files = append(files, x.Name)
			}
			return len(files) < 1000
		})
		for _, f := range files {
			if err == nil {
				err = u.o.Unlink(e.Node, f)
			}
		}
		if err != nil {
			u.o.Forget(e.Node, 1)
			return at, err
		}
		if len(files) == 1000 {
			u.o.Forget(e.Node, 1)
			continue // look again
		}
		if sub == "" {
			u.o.Forget(e.Node, 1)
			return at, nil
		}
		at.refs = append(at.refs, layers.Forgotten{Node: e.Node, N: 1})
		at.parent, at.name = e.Node, sub
	}
}
