package sandbox

import (
	"context"
	"errors"
	"maps"
	"sync"
)

// readyMost is how many empty uppers are kept ready.
const readyMost = 4

// readyUppers keeps empty, durable uppers ready for calls that would else wait for the disk: what makes new directories durable on a
// file system with a journal is that all goes to the disk that anybody has changed on it. No record names them: those that a crash
// leaves are swept, and Close removes the others.
type readyUppers struct {
	home *Home
	wake chan struct{} // of capacity 1

	mu    sync.Mutex
	ready []uint64        // guarded by mu
	spare map[uint64]bool // guarded by mu: those and what is being made
}

func newReadyUppers(h *Home) *readyUppers {
	return &readyUppers{home: h, wake: make(chan struct{}, 1), spare: map[uint64]bool{}}
}

// take gives one that is ready, which is the caller's from then on, and has another made; false if none is.
func (r *readyUppers) take() (n uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	for len(r.ready) > 0 && !ok {
		n, r.ready = r.ready[0], r.ready[1:]
		delete(r.spare, n)
		ok = r.home.uppers.exists(n) // else somebody has meddled with it, and the next Open removes what is left
	}
	return n, ok
}

// run makes uppers, after the first was asked for, until the home is closed; then it removes what nobody took.
func (r *readyUppers) run() {
	h := r.home
	defer r.remove()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-r.wake:
		}
		if err := r.fill(h.ctx); err != nil && h.ctx.Err() == nil {
			h.log.Debug("no upper is made in advance", "error", err) // whoever needs one makes it, or learns why not
		}
	}
}

// fill makes what is missing, all of it durable at the price of one.
func (r *readyUppers) fill(ctx context.Context) (err error) {
	u := r.home.uppers
	r.mu.Lock()
	missing := readyMost - len(r.ready)
	r.mu.Unlock()
	var made []uint64
	defer func() {
		for _, n := range made {
			err = errors.Join(err, u.remove(n))
			r.forget(n)
		}
	}()
	for range missing {
		r.home.yielder.Yield(ctx)
		n, err := u.number(ctx)
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.spare[n] = true
		r.mu.Unlock()
		made = append(made, n)
		if err := u.make(n); err != nil {
			return err
		}
	}
	for len(made) > 0 {
		if err := u.sync(made[0]); err != nil {
			return err
		}
		r.mu.Lock()
		r.ready = append(r.ready, made[0])
		r.mu.Unlock()
		made = made[1:]
	}
	return nil
}

func (r *readyUppers) forget(n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.spare, n)
}

// spares are the uppers that nobody has taken yet, those that are being made included.
func (r *readyUppers) spares() map[uint64]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.spare)
}

// remove removes all that are ready. Nobody takes any more.
func (r *readyUppers) remove() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.ready {
		if err := r.home.uppers.remove(n); err != nil {
			r.home.log.Warn("an upper that nobody used is still there", "upper", n, "error", err) // the next Open removes it
		}
	}
	r.ready = nil
	clear(r.spare)
}
