package uppers

import (
	"context"
	"errors"

	"snapfs/internal/lockorder"
)

// janitor removes the directories of uppers that are in the trash.
type janitor struct {
	set  *Set
	wake chan struct{} // of capacity 1

	mu      lockorder.Mutex[lockorder.Janitor]
	todo    []uint64        // guarded by mu
	busy    bool            // guarded by mu: one is being removed
	waiters []chan struct{} // guarded by mu: closed when nothing is left to do
	held    map[uint64]int  // guarded by mu: how many read the upper
	later   map[uint64]bool // guarded by mu: to be removed when nobody reads them any more
}

func newJanitor(s *Set) *janitor {
	return &janitor{set: s, wake: make(chan struct{}, 1), held: map[uint64]int{}, later: map[uint64]bool{}}
}

// Discard has the directory of an upper removed in the background. The upper is in the trash, and nobody works on it
// any more.
func (s *Set) Discard(n uint64) {
	j := s.janitor
	j.mu.Lock()
	defer j.mu.Unlock()
	j.addLocked(n)
}

// Hold keeps the directory of an upper, discarded or not, until release is called once.
func (s *Set) Hold(n uint64) (release func()) {
	j := s.janitor
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held[n]++
	return func() { j.release(n) }
}

// WaitDiscarded waits until everything discarded is removed that nobody holds, or for ctx.
func (s *Set) WaitDiscarded(ctx context.Context) error { return s.janitor.wait(ctx) }

func (j *janitor) addLocked(n uint64) {
	if j.held[n] > 0 {
		j.later[n] = true
		return
	}
	j.todo = append(j.todo, n)
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

func (j *janitor) release(n uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.held[n]--; j.held[n] > 0 {
		return
	}
	delete(j.held, n)
	if j.later[n] {
		delete(j.later, n)
		j.addLocked(n)
	}
}

func (j *janitor) wait(ctx context.Context) error {
	j.mu.Lock()
	if len(j.todo) == 0 && !j.busy {
		j.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	j.waiters = append(j.waiters, done)
	j.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next takes what is to be removed next; false if nothing is.
func (j *janitor) next() (n uint64, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.busy = len(j.todo) > 0; j.busy {
		n, j.todo = j.todo[0], j.todo[1:]
		return n, true
	}
	for _, done := range j.waiters {
		close(done)
	}
	j.waiters = nil
	return 0, false
}

// run removes until ctx ends; what is left then the next process finds in the trash.
func (j *janitor) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		}
		for ctx.Err() == nil {
			n, ok := j.next()
			if !ok {
				break
			}
			if err := j.remove(ctx, n); err != nil && !errors.Is(err, context.Canceled) {
				j.set.log.Warn("an old upper is still there", "upper", n, "error", err)
			}
		}
	}
}

// remove removes one directory, then its record.
func (j *janitor) remove(ctx context.Context, n uint64) error {
	if err := j.set.removeSlowly(ctx, n, func() { j.set.yield(ctx) }); err != nil {
		return err
	}
	return j.set.records.DropTrash(ctx, n)
}
