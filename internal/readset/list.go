package readset

import (
	"slices"
	"strings"
)

// Read is what was read of an entity.
type Read struct {
	Path  string // in the base, relative, slash-separated; "" is the root
	Kinds Kind
	Whole bool // of something in it, or of it
}

// Reads lists what was read, in the order of paths as strings.
func (s *Set) Reads() []Read {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := make(map[*Entity]string, len(s.all)+1)
	var out []Read
	add := func(e *Entity) {
		if k := e.kinds & All; k != 0 {
			out = append(out, Read{Path: paths[e], Kinds: k, Whole: e.whole})
		}
	}
	paths[s.root] = ""
	add(s.root)
	for _, e := range s.all {
		path := e.name
		if dir := paths[e.parent]; dir != "" {
			path = dir + "/" + path
		}
		paths[e] = path
		add(e)
	}
	slices.SortFunc(out, func(a, b Read) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// Index finds reads by path. It is immutable.
type Index struct {
	reads []Read
	at    map[string]int
	whole bool
}

// NewIndex makes an index of a list of Reads.
func NewIndex(reads []Read) *Index {
	x := &Index{reads: reads, at: make(map[string]int, len(reads))}
	for i, r := range reads {
		x.at[r.Path] = i
		x.whole = x.whole || r.Whole
	}
	return x
}

// Of gives what was read of a path of the base. If the answer is that of a directory above, of which only is known that
// something in it was read, it is coarse.
func (x *Index) Of(path string) (k Kind, coarse bool) {
	if i, ok := x.at[path]; ok {
		k, coarse = x.reads[i].Kinds, x.reads[i].Whole
	}
	if !x.whole {
		return k, coarse
	}
	for path != "" {
		path = path[:max(0, strings.LastIndexByte(path, '/'))]
		if i, ok := x.at[path]; ok && x.reads[i].Whole {
			k |= x.reads[i].Kinds
			coarse = true
		}
	}
	return k, coarse
}

// Below gives some read of what is in a directory of the base; false if there is none.
func (x *Index) Below(path string) (Read, bool) {
	if path == "" {
		return Read{}, false
	}
	i, _ := slices.BinarySearchFunc(x.reads, path+"/", func(r Read, p string) int { return strings.Compare(r.Path, p) })
	if i < len(x.reads) && strings.HasPrefix(x.reads[i].Path, path+"/") {
		return x.reads[i], true
	}
	return Read{}, false
}
