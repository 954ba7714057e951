package api

import (
	"iter"
	"unicode/utf8"
)

// Part chooses a part of a tree; the zero value is all of it.
type Part struct {
	// Paths are taken with all that is in them, and nothing else is. They are relative to the root of the tree. ErrNotFound
	// if one is not there.
	Paths []string `json:"paths,omitempty"`
	// Exclude are patterns as in a .gitignore file at the root of the tree. They go before those of GitIgnore.
	Exclude []string `json:"exclude,omitempty"`
	// GitIgnore leaves out what the .gitignore files in the tree say. Whether git knows a file does not count.
	GitIgnore bool `json:"gitignore,omitempty"`
}

// All reports whether nothing is left out.
func (p Part) All() bool { return len(p.Paths) == 0 && len(p.Exclude) == 0 && !p.GitIgnore }

// RawPath is what a field that holds the bytes of a path gets: the path if it is not UTF-8, for JSON would spoil it, and
// else nil.
func RawPath(path string) []byte {
	if utf8.ValidString(path) {
		return nil
	}
	return []byte(path)
}

// PathParts divides paths so that Part.Paths of a request can have each part: it takes at most a quarter of the bytes
// that a request may have.
func PathParts(paths []string) iter.Seq[[]string] {
	const most = 256 << 10
	return func(yield func([]string) bool) {
		for len(paths) > 0 {
			n, size := 0, 0
			for n < len(paths) && (n == 0 || size+len(paths[n]) < most) {
				size += len(paths[n]) + 3
				n++
			}
			if !yield(paths[:n]) {
				return
			}
			paths = paths[n:]
		}
	}
}
