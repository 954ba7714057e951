// Package keylock has locks by name.
package keylock

import (
	"context"

	"snapfs/internal/lockorder"
)

// Locks has one lock of class C for each name. The zero value is ready; safe for concurrent use.
type Locks[C any] struct {
	mu    lockorder.Mutex[lockorder.Keys]
	locks map[string]*lock[C] // guarded by mu
}

type lock[C any] struct {
	held  chan struct{} // full while held
	order lockorder.Token[C]
	users int // guarded by Locks.mu: holder and waiters
}

// Lock waits for the lock of a name or for ctx.
func (l *Locks[C]) Lock(ctx context.Context, name string) (unlock func(), err error) {
	k := l.enter(name)
	k.order.Take()
	select {
	case k.held <- struct{}{}:
		return func() { k.order.Drop(); <-k.held; l.leave(name, k) }, nil
	case <-ctx.Done():
		k.order.Drop()
		l.leave(name, k)
		return nil, ctx.Err()
	}
}

// TryLock takes the lock of a name if it is free.
func (l *Locks[C]) TryLock(name string) (unlock func(), ok bool) {
	k := l.enter(name)
	select {
	case k.held <- struct{}{}:
		k.order.Try()
		return func() { k.order.Drop(); <-k.held; l.leave(name, k) }, true
	default:
		l.leave(name, k)
		return nil, false
	}
}

func (l *Locks[C]) enter(name string) *lock[C] {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.locks[name]
	if k == nil {
		if l.locks == nil {
			l.locks = map[string]*lock[C]{}
		}
		k = &lock[C]{held: make(chan struct{}, 1)}
		l.locks[name] = k
	}
	k.users++
	return k
}

func (l *Locks[C]) leave(name string, k *lock[C]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.locks, name)
	}
}
