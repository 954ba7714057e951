package sandbox

import (
	"context"
	"sync"
)

// opLocks serialises operations by workspace name. The zero value is ready.
type opLocks struct {
	mu    sync.Mutex
	locks map[string]*opLock // guarded by mu
}

type opLock struct {
	held  chan struct{} // full while held
	users int           // guarded by opLocks.mu: holder and waiters
}

// lock waits for the lock of a name or for ctx.
func (l *opLocks) lock(ctx context.Context, name string) (unlock func(), err error) {
	lock := l.enter(name)
	select {
	case lock.held <- struct{}{}:
		return func() { <-lock.held; l.leave(name, lock) }, nil
	case <-ctx.Done():
		l.leave(name, lock)
		return nil, ctx.Err()
	}
}

// tryLock takes the lock of a name if it is free.
func (l *opLocks) tryLock(name string) (unlock func(), ok bool) {
	lock := l.enter(name)
	select {
	case lock.held <- struct{}{}:
		return func() { <-lock.held; l.leave(name, lock) }, true
	default:
		l.leave(name, lock)
		return nil, false
	}
}

func (l *opLocks) enter(name string) *opLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.locks[name]
	if lock == nil {
		if l.locks == nil {
			l.locks = map[string]*opLock{}
		}
		lock = &opLock{held: make(chan struct{}, 1)}
		l.locks[name] = lock
	}
	lock.users++
	return lock
}

func (l *opLocks) leave(name string, lock *opLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lock.users--; lock.users == 0 {
		delete(l.locks, name)
	}
}
