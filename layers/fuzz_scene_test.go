package layers

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Bounds of a scene: images of a fuzz target may show the same directory in many places.
const (
	sceneNames = 150
	sceneDepth = 40
	sceneBytes = 1 << 20
)

// sceneEntry is what an overlay shows at a path.
type sceneEntry struct {
	what  string // everything but times and links, or the error of a look-up
	err   bool   // something of it cannot be read
	dir   bool
	times string // "": not compared
	node  NodeID // of files; in one scene equal for the names of one file
	any   bool   // what it is is not compared
}

// scene is the tree that an overlay shows, by path; the root is "".
type scene struct {
	m       map[string]sceneEntry
	damaged bool // something cannot be read
	partial bool // a bound was reached: there is nothing to compare
}

// errnoName is an error as callers of a file system see it, and there must be no other.
func errnoName(t *testing.T, what string, err error) string {
	t.Helper()
	var errno unix.Errno
	if !errors.As(err, &errno) {
		t.Fatalf("%s: error without errno: %v", what, err)
	}
	return unix.ErrnoName(errno)
}

// sceneOf looks at everything that an overlay shows.
func sceneOf(t *testing.T, o *Overlay) scene {
	t.Helper()
	s := scene{m: map[string]sceneEntry{}}
	var held []Forgotten
	bytes, buf := 0, make([]byte, 128<<10)
	root, err := o.GetAttr(RootNode)
	if err != nil {
		s.damaged = true
		s.m[""] = sceneEntry{what: errnoName(t, "/", err), err: true, dir: true}
		return s
	}
	type item struct {
		path  string
		e     Entry
		depth int
	}
	for todo := []item{{"", Entry{Node: RootNode, Attr: root}, 0}}; len(todo) > 0 && !s.partial; {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		what, n, err := describe(o, it.e, buf)
		x := sceneEntry{what: what, dir: isDir(it.e.Attr.Mode), times: timesOf(it.e.Attr), node: it.e.Node}
		if err != nil {
			x.what, x.err = x.what+" "+errnoName(t, it.path, err), true
		}
		if bytes += n; bytes > sceneBytes {
			s.partial = true
		}
		if x.dir {
			var names []DirEntry
			err := o.ReadDir(it.e.Node, cookieDotDot, func(d DirEntry) bool { names = append(names, d); return true })
			if err != nil {
				x.what, x.err = x.what+" listing: "+errnoName(t, it.path, err), true
			}
			if len(s.m)+len(todo)+len(names) > sceneNames || it.depth == sceneDepth {
				s.partial = true
				break
			}
			for _, d := range names {
				p := path.Join(it.path, d.Name)
				e, err := o.Lookup(it.e.Node, d.Name)
				if err != nil {
					s.damaged = true
					s.m[p] = sceneEntry{what: errnoName(t, p, err), err: true}
					continue
				}
				held = append(held, Forgotten{e.Node, 1})
				todo = append(todo, item{p, e, it.depth + 1})
			}
		}
		s.damaged = s.damaged || x.err
		s.m[it.path] = x
	}
	o.ForgetAll(held)
	return s
}

// describe reads everything of an inode, and gives how many bytes that were.
func describe(o *Overlay, e Entry, buf []byte) (what string, size int, err error) {
	a := e.Attr
	var b strings.Builder
	if isLnk(a.Mode) {
		a.Mode = unix.S_IFLNK // hosts give links a mode of their own
	}
	fmt.Fprintf(&b, "%o %d:%d", a.Mode, a.UID, a.GID)
	names, err := o.ListXattr(e.Node)
	if err != nil {
		return b.String(), 0, err
	}
	slices.Sort(names)
	for _, name := range names {
		v, err := o.GetXattr(e.Node, name)
		if err != nil {
			return b.String(), size, err
		}
		size += len(v)
		if name == "system.posix_acl_access" {
			v = named(v)
		}
		fmt.Fprintf(&b, " %s=%q", name, v)
	}
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := o.Readlink(e.Node)
		fmt.Fprintf(&b, " -> %s", target)
		return b.String(), size, err
	case unix.S_IFCHR, unix.S_IFBLK:
		fmt.Fprintf(&b, " %#x", a.Rdev)
	case unix.S_IFREG:
		h := fnv.New64a()
		buf = buf[:min(a.Size, uint64(len(buf)))]
		k, err := o.Read(e.Node, buf, 0)
		if err == nil && k < len(buf) {
			err = unix.EIO // a metacopy of less data
		}
		if err != nil {
			return b.String(), size, err
		}
		_, _ = h.Write(buf[:k]) // never fails
		size += k
		fmt.Fprintf(&b, " %d bytes: %d with sum %x", a.Size, k, h.Sum64())
	}
	return b.String(), size, nil
}

// named gives the entries of an ACL for users and groups by name. A host keeps the others equal to the mode, which in
// an image may say something else.
func named(acl []byte) []byte {
	var out []byte
	for len(acl) > 4 {
		e := acl[4:min(len(acl), 12)]
		if e[0] == 2 || e[0] == 8 { // ACL_USER, ACL_GROUP
			out = append(out, e...)
		}
		acl = acl[len(e):]
	}
	return out
}

// timesOf leaves out times that hosts have no room for.
func timesOf(a Attr) string {
	for _, t := range []Time{a.Mtime, a.Ctime} {
		if t.Sec < 0 || t.Sec >= 1<<32 {
			return ""
		}
	}
	return fmt.Sprintf("%d.%09d %d.%09d", a.Mtime.Sec, a.Mtime.Nsec, a.Ctime.Sec, a.Ctime.Nsec)
}

// links gives, for each file with several names, the first of them.
func (s scene) links() map[string]string {
	first, out := map[NodeID]string{}, map[string]string{}
	for _, p := range slices.Sorted(maps.Keys(s.m)) {
		x := s.m[p]
		if x.dir || x.node == 0 {
			continue
		}
		if f, ok := first[x.node]; ok {
			out[p], out[f] = f, f
		} else {
			first[x.node] = p
		}
	}
	return out
}

// wantSame fails unless two scenes are the same tree.
func wantSame(t *testing.T, what string, got, want scene) {
	t.Helper()
	if got.partial || want.partial {
		return
	}
	gl, wl := got.links(), want.links()
	for _, p := range slices.Sorted(maps.Keys(want.m)) {
		w := want.m[p]
		g, ok := got.m[p]
		switch {
		case !ok:
			t.Fatalf("%s: %q is missing, want %s", what, p, w.what)
		case !w.any && g.what != w.what:
			t.Fatalf("%s: %q is\n%s\nwant\n%s", what, p, g.what, w.what)
		case w.times != "" && g.times != "" && g.times != w.times:
			t.Fatalf("%s: %q has times %s, want %s", what, p, g.times, w.times)
		case gl[p] != wl[p] && !g.err && !w.err:
			t.Fatalf("%s: %q is a name of %q, want %q", what, p, gl[p], wl[p])
		}
	}
	for p, g := range got.m {
		if _, ok := want.m[p]; !ok {
			t.Fatalf("%s: %q is there: %s", what, p, g.what)
		}
	}
}

// clone makes a scene that may be changed.
func (s scene) clone() scene {
	s.m = maps.Clone(s.m)
	return s
}

// changed has the file at p be of any kind from now on, under all its names, and the directory it lies in have any
// times.
func (s scene) changed(p string) {
	at, ok := s.m[p]
	if !ok {
		return
	}
	for q, x := range s.m {
		if q == p || !x.dir && !at.dir && x.node == at.node && x.node != 0 {
			x.any, x.times = true, ""
			s.m[q] = x
		}
	}
	s.stirred(p)
}

// touched has all names of what is at p, and its directory, have any times.
func (s scene) touched(p string) {
	at := s.m[p]
	for q, x := range s.m {
		if q == p || !x.dir && !at.dir && x.node == at.node && x.node != 0 {
			x.times = ""
			s.m[q] = x
		}
	}
	s.stirred(p)
}

// stirred has the directory that p lies in have any times.
func (s scene) stirred(p string) {
	parent := strings.TrimSuffix(path.Dir("/"+p), "/")
	parent = strings.TrimPrefix(parent, "/")
	x := s.m[parent]
	x.times = ""
	s.m[parent] = x
}

// take removes what is at and below p and gives it, by path from there.
func (s scene) take(p string) map[string]sceneEntry {
	out := map[string]sceneEntry{}
	for q, x := range s.m {
		if q == p || strings.HasPrefix(q, p+"/") {
			out[q[len(p):]] = x
			delete(s.m, q)
		}
	}
	return out
}

// put adds what take gave.
func (s scene) put(p string, tree map[string]sceneEntry) {
	for q, x := range tree {
		s.m[p+q] = x
	}
}
