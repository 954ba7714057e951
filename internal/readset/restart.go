package readset

import (
	"cmp"
	"slices"
	"strings"
)

// Move is something of the base that has another path, both relative and slash-separated.
type Move struct{ From, To string }

// Next tells what the next Restart finds: the moves that lead from the base to the tree as it is then. Who does not know
// them says so by known.
func (s *Set) Next(moves []Move, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = nil
	if known {
		s.next = &moves
	}
}

// Restart notes that another tree of the same base has come in place of the present one. What was read stays known. Unless
// Next has told what has moved in it, there is a gap.
func (s *Set) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil && s.gap == "" {
		s.gap = "the workspace was set back, and it is not known what had been renamed in the state that came in its place"
	}
	s.reset()
	if s.next != nil {
		s.place(*s.next)
		s.next = nil
	}
	s.limit()
	s.epoch.Add(1)
}

// reset puts every entity to its place in the base. mu is held.
func (s *Set) reset() {
	s.root.names = nil
	for _, e := range s.all {
		e.names = nil
		e.kinds &= All
	}
	for _, e := range s.all {
		if !e.parent.whole {
			e.parent.put(e.name, e)
		}
	}
}

// place moves entities, of which each is where the base has it. mu is held.
func (s *Set) place(moves []Move) {
	all := make([]*Entity, len(moves))
	order := make([]int, len(moves))
	for i, m := range moves {
		all[i], order[i] = s.walk(strings.Split(m.From, "/")), i
	}
	// Directories come before what is in them.
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(strings.Count(moves[a].To, "/"), strings.Count(moves[b].To, "/"))
	})
	for _, i := range order {
		to := strings.Split(moves[i].To, "/")
		dir := s.walk(to[:len(to)-1])
		if dir.whole {
			if all[i] != dir {
				all[i].widen()
				all[i].names = nil
			}
			continue
		}
		dir.put(to[len(to)-1], all[i])
	}
}
