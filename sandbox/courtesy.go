package sandbox

import (
	"context"
	"sync"
	"time"
)

// Background work stands back while a short call is under way, and for standAfter beyond it, in which the answer is on its way and the
// caller has a first look at what was made. It does so for standMost in one go, and no longer than it has worked before: calls
// without end leave it half of the time.
const (
	standMost  = 250 * time.Millisecond
	standAfter = 5 * time.Millisecond
)

// courtesy lets background work give way to calls that somebody waits for: on few processors, and in a file system whose journal they
// share, the two would take several times as long beside each other.
type courtesy struct {
	mu     sync.Mutex
	calls  int           // guarded by mu: short calls under way
	left   time.Time     // guarded by mu: when the last one ended
	ended  chan struct{} // guarded by mu: closed when calls becomes 0; nil if nobody waits for that
	credit time.Duration // guarded by mu: for how long work may stand back from since on
	since  time.Time     // guarded by mu
}

func newCourtesy() *courtesy { return &courtesy{credit: standMost, since: time.Now()} }

// enter begins a short call, which must not wait for background work, and leave ends it.
func (c *courtesy) enter() (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.left = time.Now()
		if c.calls--; c.calls == 0 && c.ended != nil {
			close(c.ended)
			c.ended = nil
		}
	}
}

// giveWay stands back, if there is reason to. Background work calls it often.
func (c *courtesy) giveWay(ctx context.Context) {
	for ctx.Err() == nil {
		ended, most := c.reason()
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
		c.stood(time.Since(start))
	}
}

// reason tells what to wait for, and for how long at most; not at all with 0.
func (c *courtesy) reason() (ended <-chan struct{}, most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.credit = min(c.credit+now.Sub(c.since), standMost)
	c.since = now
	if c.calls == 0 {
		return nil, min(c.left.Add(standAfter).Sub(now), c.credit)
	}
	if c.credit < time.Millisecond {
		return nil, 0
	}
	if c.ended == nil {
		c.ended = make(chan struct{})
	}
	return c.ended, c.credit
}

// stood takes what a wait took from the credit.
func (c *courtesy) stood(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.credit -= d
	c.since = time.Now()
}
