package fs

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/layers"
)

// The room of a removed file comes back when the kernel forgets it. It does that before the call returns that has
// removed or closed the file last, but a FORGET may be read after the request that comes next. So a change that is
// refused for lack of room waits for FORGETs that are due, which the kernel tells: of a file without a name it has
// nothing then.
const (
	// askWait bounds how long a refused change waits for the kernel's word: what is written back to a file that goes
	// holds the kernel up, and may be the very change.
	askWait = 50 * time.Millisecond
	// dueWait bounds how long it waits for a FORGET that is sure to come.
	dueWait = 10 * time.Second
	// leftWait bounds how long it waits for one of a file that the process before has left: it may have had that.
	leftWait = 100 * time.Millisecond
	// fewTries is how often it is tried again, whatever the time, when room has come back: others may have taken it.
	fewTries = 8
	// mostDue is of how many files the kernel is asked at most.
	mostDue = 4096
)

// room is what a change that needs room knows of it.
type room struct {
	a     *adapter
	freed uint64
	tries int
	begin time.Time // of the first wait
}

// room is called before a change is tried the first time.
func (a *adapter) room() room { return room{a: a, freed: a.o.Freed()} }

// comes reports whether the change is to be tried again: it was refused for lack of room, and some has come back since,
// or does so now.
func (r *room) comes(err error) bool {
	return err != nil && errors.Is(err, unix.ENOSPC) && r.wait()
}

func (r *room) wait() bool {
	o, forgotten := r.a.o, r.a.forgotten
	if !o.Counts() || forgotten == nil {
		return false
	}
	if r.tries++; r.tries == 1 {
		r.begin = time.Now()
	}
	passed := time.Since(r.begin)
	if r.came() && (r.tries <= fewTries || passed < leftWait) {
		return true
	}
	due, left := o.Nameless(mostDue)
	switch {
	case passed > dueWait:
		return false
	case forgotten(due, askWait):
		r.await(dueWait)
	case passed < leftWait && forgotten(left, askWait):
		r.await(leftWait)
	}
	return r.came()
}

// await waits until room has come back, or so much time has passed since the change was refused.
func (r *room) await(most time.Duration) {
	for pause := 100 * time.Microsecond; r.a.o.Freed() == r.freed; pause = min(2*pause, 10*time.Millisecond) {
		if time.Since(r.begin) > most || r.a.m != nil && r.a.m.Ended() {
			return
		}
		time.Sleep(pause)
	}
}

// came reports whether room has come back since it was asked the last time.
func (r *room) came() bool {
	was := r.freed
	r.freed = r.a.o.Freed()
	return r.freed != was
}

// tried makes a change that needs room, and again when that has come back.
func tried[T any](a *adapter, change func() (T, error)) (T, error) {
	r := a.room()
	for {
		v, err := change()
		if !r.comes(err) {
			return v, err
		}
	}
}

// triedOnly is tried for a change that gives nothing.
func triedOnly(a *adapter, change func() error) error {
	_, err := tried(a, func() (struct{}, error) { return struct{}{}, change() })
	return err
}

// forgotten reports whether the kernel has forgotten one of the nodes, so that a FORGET is here or on its way. It waits
// for no longer than so long: the kernel waits for a node that it is about to forget.
func (m *Mount) forgotten(nodes []layers.NodeID, wait time.Duration) bool {
	if len(nodes) == 0 {
		return false
	}
	found := make(chan bool, 1)
	m.pruner.running.Go(func() {
		for _, id := range nodes {
			if has, err := m.has(id); err != nil || !has {
				found <- err == nil
				return
			}
		}
		found <- false
	})
	late := time.NewTimer(wait)
	defer late.Stop()
	select {
	case yes := <-found:
		return yes
	case <-late.C:
		return false
	}
}
