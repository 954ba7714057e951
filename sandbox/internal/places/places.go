// Package places bounds how many calls of one kind work at a time, fairly among sessions: the others wait in line. No call
// that waits is passed over for one of a session that has more places than its own.
package places

import (
	"context"
	"slices"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/api"
)

// Places bound the calls of one kind that work at a time. A session may have as many as it leaves free, and one in any
// case while one is free: alone it has half of them, and the next session finds some. Safe for concurrent use.
type Places struct {
	size int // immutable

	mu   lockorder.Mutex[lockorder.Places]
	used int            // guarded by mu
	of   map[string]int // guarded by mu: places by session, none that is 0
	line []*inLine      // guarded by mu: calls that wait, in the order in which they came
}

// inLine is a call that waits for a place.
type inLine struct {
	session string
	placed  chan struct{} // closed when it has a place
}

// New makes so many places.
func New(size int) *Places { return &Places{size: size, of: map[string]int{}} }

// Enter takes a place until leave is called. It waits while there is none for the session, and tells progress, which
// may be nil, of that; the end of ctx ends it.
func (p *Places) Enter(ctx context.Context, session string, progress func(api.Progress)) (leave func(), err error) {
	w := &inLine{session, make(chan struct{})}
	p.mu.Lock()
	p.line = append(p.line, w)
	p.fillLocked()
	p.mu.Unlock()
	leave = func() { p.leave(session) }
	select {
	case <-w.placed:
		return leave, nil
	default:
	}
	if progress != nil {
		progress(api.Progress{Stage: api.StageWaiting, Total: -1})
	}
	select {
	case <-w.placed:
		return leave, nil
	case <-ctx.Done():
		p.giveUp(w)
		return nil, ctx.Err()
	}
}

// leave gives a place back.
func (p *Places) leave(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used--
	if p.of[session]--; p.of[session] == 0 {
		delete(p.of, session)
	}
	p.fillLocked()
}

// giveUp takes a call out of the line, or gives back the place that it has got meanwhile.
func (p *Places) giveUp(w *inLine) {
	p.mu.Lock()
	i := slices.Index(p.line, w)
	if i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 {
		p.leave(w.session)
	}
}

// fillLocked gives the free places to the calls that may have them: to that of the session with the fewest first, then
// to the one that came first.
func (p *Places) fillLocked() {
	for {
		next := -1
		for i, w := range p.line {
			own := p.of[w.session]
			if p.used < p.size && (own == 0 || own < p.size-p.used) && (next < 0 || own < p.of[p.line[next].session]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := p.line[next]
		p.line = slices.Delete(p.line, next, next+1)
		p.used++
		p.of[w.session]++
		close(w.placed)
	}
}
