package uppers

import (
	"context"
	"errors"
	"maps"

	"snapfs/internal/lockorder"
)

// readyMost is how many empty uppers are kept ready.
const readyMost = 4

// pool keeps empty, durable uppers ready for calls that would otherwise wait for the disk: to make new directories
// durable, a file system with a journal writes out all that anybody has changed on it. No record names them: those that
// a crash leaves are strays, which the next process removes, and the end of run removes the others.
type pool struct {
	set  *Set
	wake chan struct{} // of capacity 1

	mu    lockorder.Mutex[lockorder.ReadyUppers]
	ready []uint64        // guarded by mu
	spare map[uint64]bool // guarded by mu: those and what is being made
}

func newPool(s *Set) *pool {
	return &pool{set: s, wake: make(chan struct{}, 1), spare: map[uint64]bool{}}
}

// TakeReady gives an upper that is ready, which is the caller's from then on, and has another made; false if none is.
func (s *Set) TakeReady() (n uint64, ok bool) { return s.pool.take() }

func (p *pool) take() (n uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	for len(p.ready) > 0 && !ok {
		n, p.ready = p.ready[0], p.ready[1:]
		delete(p.spare, n)
		ok = p.set.Exists(n) // else somebody has meddled with it, and the next process removes what is left
	}
	return n, ok
}

// run makes uppers, after the first was asked for, until ctx ends; then it removes what nobody took.
func (p *pool) run(ctx context.Context) {
	defer p.removeAll()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		if err := p.fill(ctx); err != nil && ctx.Err() == nil {
			// A call that needs one makes it, or reports why not.
			p.set.log.Debug("no upper is made in advance", "error", err)
		}
	}
}

// fill makes what is missing, all of it durable at the price of one.
func (p *pool) fill(ctx context.Context) (err error) {
	p.mu.Lock()
	missing := readyMost - len(p.ready)
	p.mu.Unlock()
	var made []uint64
	defer func() {
		for _, n := range made {
			err = errors.Join(err, p.set.Remove(n))
			p.forget(n)
		}
	}()
	for range missing {
		p.set.yield(ctx)
		n, err := p.set.number(ctx)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.spare[n] = true
		p.mu.Unlock()
		made = append(made, n)
		if err := p.set.make(n); err != nil {
			return err
		}
	}
	for len(made) > 0 {
		if err := p.set.Sync(made[0]); err != nil {
			return err
		}
		p.mu.Lock()
		p.ready = append(p.ready, made[0])
		p.mu.Unlock()
		made = made[1:]
	}
	return nil
}

func (p *pool) forget(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.spare, n)
}

// spares are the uppers that nobody has taken yet, those that are being made included.
func (p *pool) spares() map[uint64]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.spare)
}

// removeAll removes all that are ready. No more are made.
func (p *pool) removeAll() {
	p.mu.Lock()
	ready := p.ready
	p.ready = nil
	p.mu.Unlock()
	for _, n := range ready {
		if err := p.set.Remove(n); err != nil {
			// The next process removes it.
			p.set.log.Warn("an upper that nobody used is still there", "upper", n, "error", err)
		}
		p.forget(n)
	}
}
