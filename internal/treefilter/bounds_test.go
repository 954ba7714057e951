package treefilter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestBounds: neither a call nor the files of a tree can have a filter hold any number of patterns.
func TestBounds(t *testing.T) {
	many := strings.Split(strings.Repeat("*a ", maxPatterns), " ")
	for _, o := range []Options{
		{Exclude: many}, {Paths: many}, {Exclude: []string{strings.Repeat("a", maxBytes+1)}},
	} {
		if _, err := New(o); !errors.Is(err, ErrTooMany) {
			t.Errorf("%d paths and %d patterns: %v", len(o.Paths), len(o.Exclude), err)
		}
	}
	f, err := New(Options{GitIgnore: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{strings.Repeat("*a\n", maxPatterns+1), strings.Repeat("#", MaxIgnoreFile+1)} {
		_, err := f.Root(func() ([]byte, error) { return []byte(text), nil })
		if !errors.Is(err, ErrTooMany) {
			t.Errorf("a file of %d bytes: %v", len(text), err)
		}
	}
	d, err := f.Root(func() ([]byte, error) { return nil, nil })
	full := func() ([]byte, error) { return []byte(strings.Repeat("a\n", maxPatterns)), nil }
	dirs := 0
	for ; err == nil && dirs <= maxRead/maxPatterns; dirs++ {
		_, err = d.Below("d", full)
	}
	if !errors.Is(err, ErrTooMany) || dirs != maxRead/maxPatterns+1 {
		t.Errorf("%d directories: %v", dirs, err)
	}
}

// TestLookupBound: a Lookup does not remember every directory that it was asked about, and answers the same.
func TestLookupBound(t *testing.T) {
	f, err := New(Options{GitIgnore: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Lookup(func(dir string) ([]byte, error) {
		if dir == "rules" {
			return []byte("*.o\n"), nil
		}
		return []byte("# nothing\n"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2*maxDirs + 10 {
		for path, want := range map[string]bool{fmt.Sprintf("d%d/a.o", i): true, "rules/a.o": false, "rules/in/b.o": false} {
			if got, err := l.Keeps(path, false); got != want || err != nil {
				t.Fatalf("%s: %t, %v", path, got, err)
			}
		}
	}
	if len(l.dirs) > maxDirs+2 {
		t.Errorf("%d directories are remembered", len(l.dirs))
	}
}
