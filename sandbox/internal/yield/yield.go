// Package yield lets background work stand back for calls that somebody waits for.
package yield

import (
	"context"
	"time"

	"snapfs/internal/lockorder"
)

// Background work stands back while a short call is under way, and for standAfter beyond it, in which the answer is on
// its way and the caller has a first look at what was made. It does so for standMost in one go, and no longer than it
// has worked before: calls without end leave it half of the time.
const (
	standMost  = 250 * time.Millisecond
	standAfter = 5 * time.Millisecond
)

// Yielder lets background work yield to calls that somebody waits for. Safe for concurrent use. On few processors, and
// in a file system whose journal they share, the two would take several times as long beside each other.
type Yielder struct {
	mu     lockorder.Mutex[lockorder.Yielder]
	calls  int           // guarded by mu: short calls under way
	left   time.Time     // guarded by mu: when the last one ended
	ended  chan struct{} // guarded by mu: closed when calls becomes 0; nil if nobody waits for that
	credit time.Duration // guarded by mu: for how long work may stand back from since on
	since  time.Time     // guarded by mu
}

// New gives a Yielder without calls.
func New() *Yielder { return &Yielder{credit: standMost, since: time.Now()} }

// Begin begins a short call, which must not wait for background work, and end ends it.
func (y *Yielder) Begin() (end func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.calls++
	return func() {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.left = time.Now()
		if y.calls--; y.calls == 0 && y.ended != nil {
			close(y.ended)
			y.ended = nil
		}
	}
}

// Yield stands back, if there is reason to. Background work calls it often.
func (y *Yielder) Yield(ctx context.Context) {
	for ctx.Err() == nil {
		ended, most := y.reason()
		if most <= 0 {
			return
		}
		start := time.Now()
		timer := time.NewTimer(most)
		select {
		case <-ended:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		y.stood(time.Since(start))
	}
}

// reason tells what to wait for, and for how long at most; not at all with 0.
func (y *Yielder) reason() (ended <-chan struct{}, most time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	now := time.Now()
	y.credit = min(y.credit+now.Sub(y.since), standMost)
	y.since = now
	if y.calls == 0 {
		return nil, min(y.left.Add(standAfter).Sub(now), y.credit)
	}
	if y.credit < time.Millisecond {
		return nil, 0
	}
	if y.ended == nil {
		y.ended = make(chan struct{})
	}
	return y.ended, y.credit
}

// stood takes what a wait took from the credit.
func (y *Yielder) stood(d time.Duration) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.credit -= d
	y.since = time.Now()
}
