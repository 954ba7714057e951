package layers

import (
	"slices"
	"sync/atomic"
	"time"

	"snapfs/internal/lockorder"
)

// barrier is the gate with what closes it: mutations hold it for reading; a seal, a rollback or a pause for writing.
// Those three exclude each other, but work on a paused overlay without opening it.
type barrier struct {
	lockorder.RWMutex[lockorder.OverlayGate] // the gate itself

	closers lockorder.Mutex[lockorder.Closers] // held while the gate is being closed, is closed for a moment, or opened
	paused  bool                               // guarded by closers: the gate is closed until Resume

	closed  atomic.Bool // or being closed: who wants in would wait
	mu      lockorder.Mutex[lockorder.Openers]
	openers []*func() // told when it has opened; guarded by mu
}

// close closes the gate and waits for the mutations inside. closers is held.
func (b *barrier) close() {
	b.closed.Store(true)
	b.Lock()
}

// open is the opposite of close. closers is held.
func (b *barrier) open() {
	b.Unlock()
	b.closed.Store(false)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.openers {
		(*f)()
	}
}

// Held reports whether a change would wait now: the gate is closed, or about to be. Who asks first needs no thread for
// those that wait; the answer may be out of date when it is given.
func (o *Overlay) Held() bool { return o.gate.closed.Load() }

// WhenOpen has f called each time that the gate has opened, after Held has become false, until stop is called. f must
// not wait for anything, nor call stop.
func (o *Overlay) WhenOpen(f func()) (stop func()) {
	b := &o.gate
	b.mu.Lock()
	defer b.mu.Unlock()
	b.openers = append(b.openers, &f)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.openers = slices.DeleteFunc(b.openers, func(g *func()) bool { return g == &f })
	}
}

// shut closes the gate and waits for the mutations inside. The function it gives opens it again, unless the overlay is
// paused, and tells for how long it was closed.
func (b *barrier) shut() (open func() time.Duration) {
	b.closers.Lock()
	start := time.Now()
	if !b.paused {
		b.close()
	}
	return func() time.Duration {
		if !b.paused {
			b.open()
		}
		took := time.Since(start)
		b.closers.Unlock()
		return took
	}
}

// Pause holds every change back from now on, until Resume; those under way are finished first. Reads go on. It reports
// whether the overlay was running.
func (o *Overlay) Pause() bool {
	b := &o.gate
	b.closers.Lock()
	defer b.closers.Unlock()
	if b.paused {
		return false
	}
	b.close()
	lockorder.Pass(&b.RWMutex) // to the caller of Resume
	b.paused = true
	return true
}

// Resume lets changes go on. It reports whether the overlay was paused.
func (o *Overlay) Resume() bool {
	b := &o.gate
	b.closers.Lock()
	defer b.closers.Unlock()
	if !b.paused {
		return false
	}
	b.paused = false
	b.open()
	return true
}
