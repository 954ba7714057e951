package threeway

import (
	"context"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// Tree is looked at by path: relative, slash-separated, raw bytes; "" is the root. Symbolic links are not followed.
type Tree interface {
	// Lstat gives what is at a path; nil if nothing is.
	Lstat(path string) (File, error)
	// List names what is in a directory, in no order.
	List(path string) ([]string, error)
}

// File is anything that a path leads to.
type File interface {
	Stat() layers.Attr
	// Target is where a symbolic link leads.
	Target() (string, error)
	// Read reads a regular file whole.
	Read() ([]byte, error)
	CopyTo(ctx context.Context, w io.Writer) error
	Xattrs() (map[string]string, error)
}

func kind(f File) uint32 { return f.Stat().Mode & unix.S_IFMT }

func isDir(f File) bool { return f != nil && kind(f) == unix.S_IFDIR }

func isReg(f File) bool { return f != nil && kind(f) == unix.S_IFREG }

// Join puts a name behind the path of a directory, which is "" for the root.
func Join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Split divides a path into directory and name.
func Split(path string) (dir, name string) {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i], path[i+1:]
		}
	}
	return "", path
}

// side is how one tree came from the base.
type side struct {
	tree    Tree
	to      map[string]string // where what has moved is, by its path in the base
	from    map[string]string // the other way round
	added   map[string]bool   // paths of what the base does not have
	deleted map[string]bool   // paths in the base of what it does not have
}

func newSide(t Tree, changes []layers.Change) *side {
	s := &side{t, map[string]string{}, map[string]string{}, map[string]bool{}, map[string]bool{}}
	for _, c := range changes {
		switch c.Kind {
		case layers.Added:
			s.added[c.Path] = true
		case layers.Deleted:
			s.deleted[c.Path] = true
		case layers.Renamed:
			s.to[c.OldPath], s.from[c.Path] = c.Path, c.OldPath
		}
	}
	return s
}

// overwritten notes the files of the base that are no more because another was moved over them: no change tells of them.
func (s *side) overwritten(base Tree) ([]string, error) {
	var gone []string
	for path := range s.from {
		dir, name := Split(path)
		in, ok := s.base(dir)
		if !ok {
			continue
		}
		old := Join(in, name)
		if _, moved := s.to[old]; moved || s.deleted[old] {
			continue
		}
		f, err := base.Lstat(old)
		if err != nil {
			return nil, err
		}
		if f != nil {
			gone = append(gone, old)
		}
	}
	for _, old := range gone {
		s.deleted[old] = true
	}
	slices.Sort(gone)
	return gone, nil
}

// base gives the path that an entity of this side has in the base; false if it has none.
func (s *side) base(path string) (string, bool) {
	if old, ok := s.from[path]; ok || path == "" {
		return old, true
	}
	if s.added[path] {
		return "", false
	}
	dir, name := Split(path)
	b, ok := s.base(dir)
	return Join(b, name), ok
}

// now gives the path of an entity of the base in this side; false if it is deleted.
func (s *side) now(base string) (string, bool) {
	if path, ok := s.to[base]; ok || base == "" {
		return path, true
	}
	if s.deleted[base] {
		return "", false
	}
	dir, name := Split(base)
	d, ok := s.now(dir)
	return Join(d, name), ok
}
