package layerstore

import (
	"container/list"
	"context"
	"slices"
	"strings"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
)

// Lower is one open layer in one of its forms.
type Lower struct {
	// Immutable.
	key      string // of the form
	open     *layers.Lower
	upper    uint64        // directory of the sealed form
	manifest chunkstore.ID // of a stored form
	parent   string        // layer on which the form lies

	users int           // guarded by Cache.mu
	holds map[Hold]int  // guarded by Cache.mu: so many of users are of stacks that say what for
	stale bool          // guarded by Cache.mu: replaced or deleted; goes with its last user
	idle  *list.Element // guarded by Cache.mu: in Cache.idle; nil while there are users
}

// newLower is a form that was opened.
func newLower(f catalog.Form, open *layers.Lower) *Lower {
	return &Lower{key: f.Key(), open: open, upper: f.Upper, manifest: f.Image(), parent: f.Below()}
}

// is reports whether l is what a user of a form may have. A sealed directory and the image it becomes show the same.
func (l *Lower) is(f catalog.Form) bool {
	return l.key == f.Key() && (l.upper != 0 || l.manifest == f.Image())
}

// layer is the topmost layer that l stands for.
func (l *Lower) layer() string {
	id, _, _ := strings.Cut(l.key, "~")
	return id
}

// Stack is an open stack, topmost first, with one use of each Lower. Its owner releases it, and uses it from one
// goroutine at a time.
type Stack struct {
	cache *Cache
	of    []*Lower
	hold  Hold             // what the uses are for; the zero value: somebody who is soon done
	unfit map[string]error // why the overlay above has not taken a form, by key of what was to go for it; see Refresh
}

// Lowers is what package layers takes; valid until Release.
func (s *Stack) Lowers() []*layers.Lower {
	all := make([]*layers.Lower, len(s.of))
	for i, l := range s.of {
		all[i] = l.open
	}
	return all
}

// Above counts the lowers that lie above a layer, "" for all; -1 if it is not below one of them.
func (s *Stack) Above(layer string) int {
	for i, l := range s.of {
		if l.parent == layer {
			return i + 1
		}
	}
	return -1
}

// Release gives the stack back; a second call does nothing.
func (s *Stack) Release() {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	for _, l := range s.of {
		l.note(s.hold, -1)
		s.cache.releaseLocked(l)
	}
	s.of = nil
}

// Hold says what the stack is for from now on, for Cache.Held.
func (s *Stack) Hold(h Hold) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	for _, l := range s.of {
		l.note(s.hold, -1)
		l.note(h, 1)
	}
	s.hold = h
}

// note counts uses that are for h. The caller holds Cache.mu.
func (l *Lower) note(h Hold, n int) {
	if h == (Hold{}) {
		return
	}
	if l.holds == nil {
		l.holds = map[Hold]int{}
	}
	if l.holds[h] += n; l.holds[h] == 0 {
		delete(l.holds, h)
	}
}

// Push puts a Lower, whose use passes to the stack, on top.
func (s *Stack) Push(l *Lower) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	l.note(s.hold, 1)
	s.of = slices.Insert(s.of, 0, l)
}

// Clone is the stack as it is now, with uses of its own.
func (s *Stack) Clone() *Stack { return s.cloneFrom(0) }

func (s *Stack) cloneFrom(i int) *Stack {
	c := &Stack{cache: s.cache, of: slices.Clone(s.of[i:])}
	for _, l := range c.of {
		s.cache.Retain(l)
	}
	return c
}

// DownTo opens the stack from a layer down, sharing what s has of it. It is to lie beneath the same overlay.
func (s *Stack) DownTo(ctx context.Context, top string) (next *Stack, err error) {
	if at := slices.IndexFunc(s.of, func(l *Lower) bool { return l.key == top }); at >= 0 {
		next = s.cloneFrom(at)
	} else if next, err = s.cache.Open(ctx, top); err != nil {
		return nil, err
	}
	next.Hold(s.hold)
	next.unfit = s.unfit
	return next, nil
}

// is reports whether a stack consists of these forms.
func (s *Stack) is(forms []catalog.Form) bool {
	return slices.EqualFunc(s.of, forms, func(l *Lower, f catalog.Form) bool {
		return l.is(f) && (l.upper == 0 || l.parent == f.Below())
	})
}
