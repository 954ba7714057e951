package layerstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// gate is an openForm that waits for the opening of one layer to be let through, with an error or none.
type gate struct {
	layer   string
	began   chan context.Context // what is being opened, with its context
	through chan error
	opened  atomic.Int64 // how often layer was
}

// slow makes the opening of a layer slow.
func (x *fixture) slow(layer string) *gate {
	g := &gate{layer: layer, began: make(chan context.Context, 100), through: make(chan error)}
	open := x.cache.openForm
	x.cache.openForm = func(ctx context.Context, f catalog.Form) (*layers.Lower, error) {
		if f.ID != g.layer {
			return open(ctx, f)
		}
		g.opened.Add(1)
		g.began <- ctx
		select {
		case err := <-g.through:
			if err != nil {
				return nil, err
			}
			return open(ctx, f)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g
}

// result is what a call that opens a stack returned.
type result struct {
	stack *Stack
	err   error
}

// opening opens a stack in the background.
func (x *fixture) opening(ctx context.Context, top string) <-chan result {
	done := make(chan result, 1)
	go func() { // ends with the call, whose result the test takes
		s, err := x.cache.Open(ctx, top)
		done <- result{s, err}
	}()
	return done
}

// waiting waits until as many calls wait for a layer.
func (x *fixture) waiting(layer string, want int) {
	x.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		x.cache.mu.Lock()
		n := 0
		if f := x.cache.flights[layer]; f != nil {
			n = f.waiters
		}
		x.cache.mu.Unlock()
		if n == want {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("%d calls wait, want %d", n, want)
		}
	}
}

// users is how many use an open layer; -1 if it is not open.
func (x *fixture) users(layer string) int {
	x.cache.mu.Lock()
	defer x.cache.mu.Unlock()
	if l := x.cache.entries[layer]; l != nil {
		return l.users
	}
	return -1
}

// TestSlowOpen: a layer that takes long to open delays neither the opening of another nor what is open already, and all
// that want it share one opening.
func TestSlowOpen(t *testing.T) {
	x := newFixture(t, false)
	a, _ := x.seal("", "a")
	b, _ := x.seal("", "b")
	c, _ := x.seal("", "c")
	x.open(c).Release()
	g := x.slow(a)
	const callers = 5
	var slow [callers]<-chan result
	for i := range slow {
		slow[i] = x.opening(t.Context(), a)
	}
	<-g.began
	x.waiting(a, callers)
	for _, layer := range []string{b, c, b} {
		x.open(layer).Release() // would not return
	}
	g.through <- nil
	for _, done := range slow {
		r := <-done
		if r.err != nil {
			t.Fatal(r.err)
		}
		defer r.stack.Release()
	}
	if n, users := g.opened.Load(), x.users(a); n != 1 || users != callers {
		t.Errorf("opened %d times, with %d users of %d", n, users, callers)
	}
}

// TestOpenFails: an error reaches all that wait, and the next call tries once more.
func TestOpenFails(t *testing.T) {
	x := newFixture(t, false)
	a, _ := x.seal("", "a")
	g := x.slow(a)
	first, second := x.opening(t.Context(), a), x.opening(t.Context(), a)
	<-g.began
	x.waiting(a, 2)
	broken := errors.New("broken")
	g.through <- broken
	for _, done := range []<-chan result{first, second} {
		if r := <-done; !errors.Is(r.err, broken) {
			t.Errorf("got %v, want %v", r.err, broken)
		}
	}
	third := x.opening(t.Context(), a)
	<-g.began
	g.through <- nil
	r := <-third
	if r.err != nil {
		t.Fatal(r.err)
	}
	r.stack.Release()
	if n := x.users(a); n != 0 {
		t.Errorf("%d users are left", n)
	}
}

// TestOpenCancelled: a call that is cancelled leaves the others waiting, and the last one ends the opening.
func TestOpenCancelled(t *testing.T) {
	x := newFixture(t, false)
	a, _ := x.seal("", "a")
	g := x.slow(a)
	ctx, cancel := context.WithCancel(t.Context())
	impatient, patient := x.opening(ctx, a), x.opening(t.Context(), a)
	<-g.began
	x.waiting(a, 2)
	cancel()
	if r := <-impatient; !errors.Is(r.err, context.Canceled) {
		t.Errorf("got %v, want %v", r.err, context.Canceled)
	}
	x.waiting(a, 1)
	g.through <- nil
	r := <-patient
	if r.err != nil {
		t.Fatal(r.err)
	}
	r.stack.Release()
	if n := x.users(a); n != 0 {
		t.Errorf("%d users are left", n)
	}

	b, _ := x.seal("", "b")
	g.layer = b
	ctx, cancel = context.WithCancel(t.Context())
	alone := x.opening(ctx, b)
	flight := <-g.began
	x.waiting(b, 1)
	cancel()
	if r := <-alone; !errors.Is(r.err, context.Canceled) {
		t.Errorf("got %v, want %v", r.err, context.Canceled)
	}
	<-flight.Done()
	retried := x.opening(t.Context(), b)
	<-g.began
	g.through <- nil
	if r := <-retried; r.err != nil {
		t.Errorf("after an opening that was cancelled: %v", r.err)
	} else {
		r.stack.Release()
	}
}

// TestDeletedWhileOpening: a layer that is deleted while it is being opened is not found, and its directory goes.
func TestDeletedWhileOpening(t *testing.T) {
	for _, fails := range []error{nil, errors.New("its directory is gone")} {
		x := newFixture(t, false)
		a, s := x.seal("", "a")
		upper := x.Catalog.Layer(a).Upper
		g := x.slow(a)
		done := x.opening(t.Context(), a)
		<-g.began
		x.waiting(a, 1)
		x.delete(s)
		g.through <- fails
		if r := <-done; !errors.Is(r.err, api.ErrNotFound) || errors.Is(r.err, fails) && fails != nil {
			t.Errorf("got %v, want %v", r.err, api.ErrNotFound)
		}
		if n := x.users(a); n != -1 {
			t.Errorf("it is open, with %d users", n)
		}
		if err := x.Uppers.WaitDiscarded(t.Context()); err != nil || x.Uppers.Exists(upper) {
			t.Errorf("its directory is still there: %v", err)
		}
	}
}

// TestStoredWhileOpen stores layers while others open and release them: every opening shows the tree, and in the end no
// directory is left.
func TestStoredWhileOpen(t *testing.T) {
	x := newFixture(t, true)
	const depth = 12
	var top string
	var tops []string
	var readers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer readers.Wait()
	defer cancel()
	for range depth {
		top, _ = x.seal(top, "file")
		tops = append(tops, top)
		for range 2 {
			layer, depth := top, len(tops)
			readers.Go(func() {
				for ctx.Err() == nil {
					s, err := x.cache.Open(t.Context(), layer)
					if err != nil {
						t.Error(err)
						return
					}
					if n := len(s.Lowers()); n != depth {
						t.Errorf("%d lowers, want %d", n, depth)
					}
					s.Release()
				}
			})
		}
	}
	if err := x.storer.Wait(t.Context(), top, nil); err != nil {
		t.Error(err)
	}
	cancel()
	readers.Wait()
	for _, layer := range tops {
		if r := x.Catalog.Layer(layer); r.State != api.Stored {
			t.Errorf("layer %s is %s", layer, r.State)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if err := x.Uppers.WaitDiscarded(t.Context()); err != nil {
			t.Fatal(err)
		}
		trash, err := x.Catalog.Trash(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		strays, err := x.Uppers.Strays(nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(trash) == 0 && len(strays) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("in the trash %v, strays %v", trash, strays)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.attempts) != depth || errors.Join(x.attempts...) != nil {
		t.Errorf("attempts to store %d layers: %v", depth, x.attempts)
	}
}
