package readset

import (
	"strings"
	"sync/atomic"

	"snapfs/internal/lockorder"
)

// Kind is what was read of an entity; kinds may be or-ed.
type Kind uint8

// Kinds of reads.
const (
	Content    Kind = 1 << iota // of a file, or where a symbolic link leads
	Listing                     // the names in a directory
	Missing                     // that there is nothing
	Attributes                  // that there is something, or what stat tells

	replaced // the contents are the programs' own by now; no read

	// All is every kind.
	All = Content | Listing | Missing | Attributes
)

// MaxEntities is how many entities a set keeps apart, of some 130 bytes each.
const MaxEntities = 1 << 18

// Set is what was read of one tree.
type Set struct {
	mu   lockorder.Mutex[lockorder.ReadSet]
	root *Entity   // immutable; what is in it, and in all entities, is guarded by mu
	all  []*Entity // but the root; a directory before what is in it. Guarded by mu, as what follows.
	most int
	gap  string
	next *[]Move // for Restart; nil: nobody has told

	epoch atomic.Uint32
}

// Entity is what the base has under a name, or made.
type Entity struct {
	parent *Entity // in the base; nil: the root, or something that programs made
	name   string  // in the base
	names  map[string]*Entity
	kinds  Kind
	whole  bool // kinds are of everything in it, and names is nil
	made   bool
}

// made stands for what programs have made and in which there is nothing else.
var made = &Entity{made: true}

// New makes an empty set that keeps at most so many entities apart.
func New(most int) *Set { return &Set{root: &Entity{}, most: most} }

// Made is what programs have made.
func Made() *Entity { return made }

// Epoch counts restarts: what was noted before may have to be noted again.
func (s *Set) Epoch() uint32 { return s.epoch.Load() }

// Note notes a read of what is at a path.
func (s *Set) Note(path []string, k Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walk(path).note(k)
	s.limit()
}

// NoteEntity notes a read of something that At has given.
func (s *Set) NoteEntity(e *Entity, k Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := e.within(); w != nil {
		e = w
	}
	e.note(k)
}

// Replaced notes that programs have replaced the contents of what is at a path: they are not of the base any more.
func (s *Set) Replaced(path []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.walk(path); !e.whole && !e.made {
		e.kinds |= replaced
	}
}

// Lose notes that reads are missing.
func (s *Set) Lose(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gap == "" {
		s.gap = why
	}
}

// Gap is the first reason for which reads are missing; "" if there is none.
func (s *Set) Gap() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gap
}

// At gives what is at a path.
func (s *Set) At(path []string) *Entity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.walk(path)
}

// Put notes that something is at a path now: an entity that At has given, or what Made gives. What was there keeps what
// was read of it.
func (s *Set) Put(path []string, e *Entity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(path) == 0 {
		return
	}
	dir := s.walk(path[:len(path)-1])
	if w := e.within(); w != nil {
		e = w
	}
	name := path[len(path)-1]
	switch {
	case dir.whole:
		if e != dir && !e.made { // reads of it are taken for reads of the directory from now on
			e.widen()
			s.settle(e, e)
			e.names = nil
		}
		return
	case dir == made && e.made:
		return
	case dir == made:
		dir = s.materialize(path[:len(path)-1])
	}
	dir.put(strings.Clone(name), e)
	s.limit()
}

// Make notes that programs have made something at a path; a directory if dir is set.
func (s *Set) Make(path []string, dir bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.walk(path[:len(path)-1])
	name := path[len(path)-1]
	if p.whole || p == made {
		return
	}
	if _, known := p.names[name]; known || dir {
		p.put(strings.Clone(name), made)
	}
}

// materialize gives a directory that programs made an entry of its own, as an entity comes into it.
func (s *Set) materialize(path []string) *Entity {
	e := s.root
	for _, name := range path {
		c := e.names[name]
		if c == made || c == nil {
			c = &Entity{made: true}
			e.put(strings.Clone(name), c)
		}
		e = c
	}
	return e
}

// walk gives what is at a path, which ends early in what is whole or made. mu is held.
func (s *Set) walk(path []string) *Entity {
	e := s.root
	for _, name := range path {
		if e.whole || e == made {
			return e
		}
		c := e.names[name]
		switch {
		case c != nil:
		case e.made:
			return made
		default:
			c = &Entity{parent: e, name: strings.Clone(name)}
			e.put(c.name, c)
			s.all = append(s.all, c)
		}
		e = c
	}
	return e
}

func (e *Entity) put(name string, c *Entity) {
	if e.names == nil {
		e.names = map[string]*Entity{}
	}
	e.names[name] = c
}

func (e *Entity) note(k Kind) {
	if e.made || k == Content && e.kinds&replaced != 0 {
		return
	}
	e.kinds |= k
}

// widen makes an entity whole, of which everything counts as read.
func (e *Entity) widen() { e.whole, e.kinds = true, All }

// within gives the whole entity, further up in the base, that an entity has become a part of; nil if there is none.
func (e *Entity) within() *Entity {
	var found *Entity
	for p := e.parent; p != nil; p = p.parent {
		if p.whole {
			found = p
		}
	}
	return found
}
