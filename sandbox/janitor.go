package sandbox

import (
	"context"
	"errors"
	"sync"
)

// janitor removes the directories of uppers that no record names any more. Their numbers are in the trash bucket until they are
// gone, so that a crash delays the removal and nothing else.
type janitor struct {
	home *Home
	wake chan struct{} // of capacity 1

	mu      sync.Mutex
	todo    []uint64        // guarded by mu
	busy    bool            // guarded by mu: one is being removed
	waiters []chan struct{} // guarded by mu: closed when nothing is left to do
	held    map[uint64]int  // guarded by mu: how many read the upper
	later   map[uint64]bool // guarded by mu: to be removed when nobody reads them any more
}

func newJanitor(h *Home) *janitor {
	return &janitor{home: h, wake: make(chan struct{}, 1), held: map[uint64]int{}, later: map[uint64]bool{}}
}

// add hands over the number of an upper that is in the trash bucket and that nobody works on any more.
func (j *janitor) add(n uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.addLocked(n)
}

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

// hold keeps the directory of an upper, whatever becomes of the upper, until release is called once.
func (j *janitor) hold(n uint64) (release func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held[n]++
	return func() {
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
}

// wait waits until everything is removed that nobody reads, or for ctx.
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

// run removes until the home is closed; what is left then is found in the bucket by the next Open.
func (j *janitor) run() {
	for {
		select {
		case <-j.home.ctx.Done():
			return
		case <-j.wake:
		}
		for j.home.ctx.Err() == nil {
			n, ok := j.next()
			if !ok {
				break
			}
			if err := j.empty(j.home.ctx, n); err != nil && !errors.Is(err, context.Canceled) {
				j.home.log.Warn("an old upper is still there", "upper", n, "error", err)
			}
		}
	}
}

// empty removes one directory, then its mention.
func (j *janitor) empty(ctx context.Context, n uint64) error {
	if err := j.home.uppers.removeSlowly(ctx, n, func() { j.home.yielder.Yield(ctx) }); err != nil {
		return err
	}
	_, err := j.home.catalog.update(ctx, false, func(ch *change) error {
		ch.delTrash = append(ch.delTrash, n)
		return nil
	})
	return err
}
