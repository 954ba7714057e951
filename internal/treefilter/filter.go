package treefilter

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
)

// IgnoreFile is the name of the files that GitIgnore honours.
const IgnoreFile = ".gitignore"

const (
	// MaxIgnoreFile is how many bytes such a file may have.
	MaxIgnoreFile = 64 << 10
	// maxPatterns is how many patterns options or a file may have, and how many paths options.
	maxPatterns = 4096
	// maxBytes is how long the paths and the patterns of options may be together.
	maxBytes = 64 << 10
	// maxRead is how many patterns of .gitignore files a Filter takes in all, and maxReadBytes how many bytes.
	maxRead      = 32 << 10
	maxReadBytes = 2 << 20
	// maxDirs is how many directories without patterns a Lookup remembers.
	maxDirs = 32 << 10
)

// ErrTooMany is for more patterns or paths, or longer ones, than a Filter takes.
var ErrTooMany = errors.New("too many patterns or paths, or too long ones: at most 4096 and 64 KiB in a call and in a " +
	IgnoreFile + " file, and 32768 and 2 MiB in all such files together")

// Options choose a part. The zero value is everything.
type Options struct {
	Paths     []string
	Exclude   []string
	GitIgnore bool
}

// ErrPath is for a path that cannot be of a tree.
var ErrPath = errors.New("not a path in the tree")

// Filter chooses a part of a tree. Several goroutines may use it.
type Filter struct {
	paths     []string
	exclude   []pattern
	gitIgnore bool
	read      atomic.Int64 // patterns of .gitignore files
	readBytes atomic.Int64
	met       []atomic.Bool // which of paths are there
	left      []atomic.Bool // which of paths patterns leave out
}

// New reads options; nil if they leave nothing out.
func New(o Options) (*Filter, error) {
	size := 0
	for _, list := range [][]string{o.Paths, o.Exclude} {
		for _, s := range list {
			size += len(s)
		}
		if len(list) > maxPatterns || size > maxBytes {
			return nil, ErrTooMany
		}
	}
	f := &Filter{gitIgnore: o.GitIgnore}
	all := len(o.Paths) == 0
	for _, p := range o.Paths {
		clean, err := Clean(p)
		if err != nil {
			return nil, err
		}
		if clean == "" {
			all = true
		}
		f.paths = append(f.paths, clean)
	}
	if all {
		f.paths = nil
	}
	f.met, f.left = make([]atomic.Bool, len(f.paths)), make([]atomic.Bool, len(f.paths))
	for _, line := range o.Exclude {
		f.exclude = append(f.exclude, parsePattern(line))
	}
	if len(f.paths) == 0 && len(f.exclude) == 0 && !f.gitIgnore {
		return nil, nil
	}
	return f, nil
}

// Clean makes a path relative to the root, which is "".
func Clean(p string) (string, error) {
	var names []string
	for name := range strings.SplitSeq(p, "/") {
		switch name {
		case "", ".":
		case "..":
			return "", fmt.Errorf("%q: %w", p, ErrPath)
		default:
			names = append(names, name)
		}
	}
	if p == "" {
		return "", fmt.Errorf("%q: %w", p, ErrPath)
	}
	return strings.Join(names, "/"), nil
}

// Missing is a path that was chosen and that no directory had; "" if there is none.
func (f *Filter) Missing() string {
	for i, p := range f.paths {
		if !f.met[i].Load() {
			return p
		}
	}
	return ""
}

// LeftOut is a path that was chosen, and that patterns leave out, itself or with a directory that it is in; "" if there
// is none.
func (f *Filter) LeftOut() string {
	for i, p := range f.paths {
		if f.left[i].Load() {
			return p
		}
	}
	return ""
}

// Dir is a directory that is taken.
type Dir struct {
	f     *Filter
	up    *Dir
	path  string    // "" for the root
	lines []pattern // of its .gitignore
}

// Root is the root of the tree. read gives the .gitignore file of a directory; nil if it has none.
func (f *Filter) Root(read func() ([]byte, error)) (*Dir, error) { return f.open(nil, "", read) }

func (f *Filter) open(up *Dir, path string, read func() ([]byte, error)) (*Dir, error) {
	d := &Dir{f: f, up: up, path: path}
	if !f.gitIgnore {
		return d, nil
	}
	text, err := read()
	if err == nil {
		d.lines, err = parse(text)
	}
	if err == nil && len(d.lines) > 0 && (f.read.Add(int64(len(d.lines))) > maxRead || f.readBytes.Add(int64(len(text))) > maxReadBytes) {
		err = ErrTooMany
	}
	if errors.Is(err, ErrTooMany) {
		err = fmt.Errorf("%q: %w", join(path, IgnoreFile), err)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Below is a directory in d that d keeps.
func (d *Dir) Below(name string, read func() ([]byte, error)) (*Dir, error) {
	return d.f.open(d, join(d.path, name), read)
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// Keep reports whether a name in the directory is taken.
func (d *Dir) Keep(name string, isDir bool) bool {
	path := join(d.path, name)
	if !d.f.chosen(path, isDir) {
		return false
	}
	if !d.ignored(path, name, isDir) {
		return true
	}
	for i, p := range d.f.paths {
		if p == path || strings.HasPrefix(p, path) && p[len(path)] == '/' {
			d.f.left[i].Store(true)
		}
	}
	return false
}

// chosen reports whether a path is, or is in, or leads to one of those that were given.
func (f *Filter) chosen(path string, isDir bool) bool {
	found := len(f.paths) == 0
	for i, p := range f.paths {
		switch {
		case path == p:
			f.met[i].Store(true)
			found = true
		case strings.HasPrefix(path, p) && path[len(p)] == '/',
			isDir && strings.HasPrefix(p, path) && p[len(path)] == '/':
			found = true
		}
	}
	return found
}

// ignored holds a path against the patterns that are valid in a directory.
func (d *Dir) ignored(path, name string, isDir bool) bool {
	if ignored, decided := decide(d.f.exclude, path, name, isDir); decided {
		return ignored
	}
	for at := d; at != nil; at = at.up {
		rel := path
		if at.path != "" {
			rel = path[len(at.path)+1:]
		}
		if ignored, decided := decide(at.lines, rel, name, isDir); decided {
			return ignored
		}
	}
	return false
}

// decide finds the last pattern that matches.
func decide(list []pattern, path, name string, isDir bool) (ignored, decided bool) {
	for i := len(list) - 1; i >= 0; i-- {
		if list[i].matches(path, name, isDir) {
			return !list[i].negated, true
		}
	}
	return false, false
}

// Lookup answers for paths in any order.
type Lookup struct {
	read func(dir string) ([]byte, error)
	root *Dir
	dirs map[string]*Dir // nil: left out

	plain int // how many in dirs have no patterns, at most
}

// Lookup begins to answer. read gives the .gitignore file of a directory.
func (f *Filter) Lookup(read func(dir string) ([]byte, error)) (*Lookup, error) {
	root, err := f.Root(func() ([]byte, error) { return read("") })
	return &Lookup{read: read, root: root, dirs: map[string]*Dir{"": root}}, err
}

// Keeps reports whether a path is taken.
func (l *Lookup) Keeps(path string, isDir bool) (bool, error) {
	if path == "" {
		return true, nil
	}
	up, name := split(path)
	dir, err := l.dir(up)
	if dir == nil || err != nil {
		return false, err
	}
	return dir.Keep(name, isDir), nil
}

// dir finds a directory; nil if it is left out.
func (l *Lookup) dir(path string) (*Dir, error) {
	if d, met := l.dirs[path]; met {
		return d, nil
	}
	up, name := split(path)
	above, err := l.dir(up)
	if err != nil {
		return nil, err
	}
	var d *Dir
	if above != nil && above.Keep(name, true) {
		if d, err = above.Below(name, func() ([]byte, error) { return l.read(path) }); err != nil {
			return nil, err
		}
	}
	if l.plain == maxDirs { // they are read again if they are asked for
		maps.DeleteFunc(l.dirs, func(path string, d *Dir) bool { return path != "" && (d == nil || len(d.lines) == 0) })
		l.plain = 0
	}
	if d == nil || len(d.lines) == 0 {
		l.plain++
	}
	l.dirs[path] = d
	return d, nil
}

func split(path string) (dir, name string) {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}
