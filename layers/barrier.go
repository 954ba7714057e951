package layers

import (
	"sync"
	"time"
)

// barrier is the gate with what closes it: mutations hold it for reading; a seal, a rollback or a pause for writing. Those three
// exclude each other, but work on a paused overlay without opening it.
type barrier struct {
	sync.RWMutex // the gate itself

	closers sync.Mutex // held while the gate is being closed, is closed for a moment, or opened
	paused  bool       // guarded by closers: the gate is closed until Resume
}

// shut closes the gate and waits for the mutations inside. The function it gives opens it again, unless the overlay is
// paused, and tells for how long it was closed.
func (b *barrier) shut() (open func() time.Duration) {
	b.closers.Lock()
	start := time.Now()
	if !b.paused {
		b.Lock()
	}
	return func() time.Duration {
		if !b.paused {
			b.Unlock()
		}
		took := time.Since(start)
		b.closers.Unlock()
		return took
	}
}

// Pause holds every change back from now on, until Resume; those under way are finished first. Reads go on, as far as the transport
// has room beside the calls that wait. It reports whether the overlay was running.
func (o *Overlay) Pause() bool {
	b := &o.gate
	b.closers.Lock()
	defer b.closers.Unlock()
	if b.paused {
		return false
	}
	b.Lock()
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
	b.Unlock()
	return true
}
