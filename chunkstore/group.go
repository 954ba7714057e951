package chunkstore

import (
	"errors"

	"snapfs/internal/lockorder"
)

// Transactions that are asked for at the same time share one of Badger, and with it one entry of the journal and one
// sync of each: a group. While a group is written, those that come meanwhile wait in line, and the next one has
//
//	all small transactions that wait, in the order in which they came, as far as they fit, and
//	the large one that has waited longest
//
// so that a small one waits for the group that is being written, and for no other. Whoever is first in line leads: it
// writes the group for all that are in it. The functions of small transactions can run again: if one of them fails, it
// is as if it had never been in the group. That of a large one runs once, as the last.
//
// To the disk a group is one transaction. It is there as a whole or not at all.

// What small transactions may write before a large one that is to share their group, and before a small one.
const (
	groupEntries = 1000
	groupBytes   = 128 << 10
	groupMost    = 5000 // with what one Tx may write, less than what a transaction takes
	groupSize    = 512 << 10
)

// request is a transaction that waits for its group, or is in it.
type request struct {
	fn   func(t *writeTxn) error
	turn chan bool // of capacity 1: true if it is to lead a group, false once it is done
	err  error     // valid when it is done
}

// line is where transactions wait.
type line struct {
	mu    lockorder.Mutex[lockorder.StoreLine]
	busy  bool       // somebody leads; guarded by mu
	small []*request // guarded by mu
	large []*request // guarded by mu
	next  bool       // the next group begins with the large one, for which the one before had no room; guarded by mu
}

// update runs fn in a read-write transaction and makes it durable. Transactions run one at a time; see line.
func (s *Store) update(fn func(t *writeTxn) error) error { return s.inLine(fn, &s.line.large) }

// updateSmall is update for a transaction that writes little, and no pages. fn may run several times: what it leaves
// outside of the transaction is that of the last time.
func (s *Store) updateSmall(fn func(t *writeTxn) error) error { return s.inLine(fn, &s.line.small) }

// inLine waits in a row of s.line until the transaction is done, and leads groups when it is first.
func (s *Store) inLine(fn func(t *writeTxn) error, row *[]*request) error {
	if s.opts.ReadOnly {
		return ErrReadOnly
	}
	m := &request{fn: fn, turn: make(chan bool, 1)}
	s.line.mu.Lock()
	*row = append(*row, m)
	lead := !s.line.busy
	s.line.busy = true
	s.line.mu.Unlock()
	if !lead {
		lead = <-m.turn
	}
	for lead {
		s.lead()
		lead = <-m.turn
	}
	return m.err
}

// lead writes the next group.
func (s *Store) lead() {
	defer s.line.pass()
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	defer s.startUpkeep()
	g := s.line.take()
	defer g.end()
	s.writeGroup(g)
}

// pass lets the first in line lead.
func (l *line) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.small) > 0:
		l.small[0].turn <- true
	case len(l.large) > 0:
		l.large[0].turn <- true
	default:
		l.busy = false
	}
}

// take takes a group out of the line.
func (l *line) take() *group {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := &group{line: l}
	if len(l.large) > 0 {
		g.large, l.large = l.large[0], l.large[1:]
	}
	if !l.next || g.large == nil {
		g.small, l.small = l.small, nil
	}
	l.next = false
	return g
}

// group is transactions that are written as one.
type group struct {
	line  *line
	small []*request // in it
	large *request   // in it; nil if there is none
	done  []*request // with their results
}

var errGivenUp = errors.New("the transaction was given up")

// end tells members that they are done. Those that are still in the group were not written.
func (g *group) end() {
	g.settle(errGivenUp)
	for _, m := range g.done {
		m.turn <- false
	}
}

// settle is called when what is left of the group was written, or could not be.
func (g *group) settle(err error) {
	left := g.small
	if g.large != nil {
		left = append(left, g.large)
	}
	for _, m := range left {
		m.err = err
	}
	g.done = append(g.done, left...)
	g.small, g.large = nil, nil
}

// fail takes a member out of the group.
func (g *group) fail(m *request, err error) {
	m.err = err
	g.done = append(g.done, m)
}

// back puts members of the group from the i-th on back to the beginning of the line.
func (g *group) back(i int) {
	l := g.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.small = append(g.small[i:len(g.small):len(g.small)], l.small...)
	g.small = g.small[:i]
}

// postpone puts the large member back to the beginning of the line: the next group begins with it.
func (g *group) postpone() {
	l := g.line
	l.mu.Lock()
	defer l.mu.Unlock()
	l.large = append([]*request{g.large}, l.large...)
	l.next = true
	g.large = nil
}

// run runs the members' functions in a transaction, and drops those that fail. It reports whether the transaction has
// what is left of the group, and nothing else; if not, it is to be given up.
func (g *group) run(t *writeTxn) bool {
	for i := 0; i < len(g.small); {
		if t.entries >= groupMost || t.bytes >= groupSize {
			g.back(i)
			break
		}
		m := g.small[i]
		before, state, done := t.entries, t.state, len(t.done)
		err := m.fn(t)
		if err == nil {
			i++
			continue
		}
		g.fail(m, err)
		g.small = append(g.small[:i:i], g.small[i+1:]...)
		if t.entries != before {
			return false
		}
		t.state, t.done = state, t.done[:done]
	}
	switch {
	case g.large == nil:
	case t.entries > groupEntries || t.bytes > groupBytes:
		g.postpone()
	default:
		t.base.entries, t.base.bytes = t.entries, t.bytes
		err := g.large.fn(t)
		if err == nil {
			err = t.writePages()
		}
		if err != nil {
			g.fail(g.large, err)
			g.large = nil
			return false
		}
	}
	return true
}

// writeGroup writes a group. The caller holds writeMu.
func (s *Store) writeGroup(g *group) {
	if err := s.ready(); err != nil {
		g.settle(err)
		return
	}
	for len(g.small) > 0 || g.large != nil {
		if s.tryGroup(g) {
			return
		}
	}
}

// part divides a group that could not be written, so that a member for which there is no room, or whose journal cannot
// be begun, fails alone. It reports whether something is left to be tried. The large member has run, and fails.
func (g *group) part(err error) bool {
	switch {
	case g.large != nil && len(g.small) > 0:
		g.fail(g.large, err)
		g.large = nil
	case len(g.small) > 1:
		g.back(1)
	default:
		return false
	}
	return true
}

// tryGroup writes a group, unless a member fails: then it is to be called again with those that are left.
func (s *Store) tryGroup(g *group) bool {
	t := s.begin()
	defer t.btx.Discard()
	if !g.run(t) {
		return false
	}
	if len(g.small) > 0 || g.large != nil {
		err := s.commit(t)
		if err != nil && s.broken == nil && g.part(err) {
			return false
		}
		g.settle(err)
	}
	return true
}
