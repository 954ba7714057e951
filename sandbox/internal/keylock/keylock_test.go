package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"snapfs/internal/lockorder"
)

// TestLocks: a name is held by one at a time, a waiter leaves with its context, and what nobody uses is forgotten.
func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locks[lockorder.HomeOps]
		unlock, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := l.TryLock("a"); ok {
			t.Error("a was taken twice")
		}
		other, ok := l.TryLock("b")
		if !ok {
			t.Fatal("b waits for a")
		}
		other()
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, got := make(chan error), make(chan error)
		go func() { _, err := l.Lock(ctx, "a"); gaveUp <- err }()
		go func() {
			next, err := l.Lock(t.Context(), "a")
			if err == nil {
				next()
			}
			got <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("a waiter whose context has ended: %v", err)
		}
		unlock()
		if err := <-got; err != nil {
			t.Errorf("the next waiter: %v", err)
		}
		if len(l.locks) != 0 {
			t.Errorf("%d locks are left", len(l.locks))
		}
	})
}
