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

	mu   sync.Mutex
	todo []uint64 // guarded by mu
}

func newJanitor(h *Home) *janitor { return &janitor{home: h, wake: make(chan struct{}, 1)} }

// add hands over the number of an upper that is in the trash bucket and that nobody uses any more.
func (j *janitor) add(n uint64) {
	j.mu.Lock()
	j.todo = append(j.todo, n)
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
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
			j.mu.Lock()
			if len(j.todo) == 0 {
				j.mu.Unlock()
				break
			}
			n := j.todo[0]
			j.todo = j.todo[1:]
			j.mu.Unlock()
			if err := j.empty(j.home.ctx, n); err != nil && !errors.Is(err, context.Canceled) {
				j.home.log.Warn("an old upper is still there", "upper", n, "error", err)
			}
		}
	}
}

// empty removes one directory, then its mention.
func (j *janitor) empty(ctx context.Context, n uint64) error {
	if err := j.home.uppers.remove(n); err != nil {
		return err
	}
	_, err := j.home.catalog.update(ctx, false, func(ch *change) error {
		ch.delTrash = append(ch.delTrash, n)
		return nil
	})
	return err
}
