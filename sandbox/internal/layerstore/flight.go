package layerstore

import (
	"context"

	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
)

// flight is the opening of one form from disk.
type flight struct {
	form   catalog.Form
	cancel context.CancelFunc
	landed chan struct{} // closed when lower and err are set

	waiters int    // guarded by Cache.mu until landed: callers that get a use of lower
	lower   *Lower // of the form that the record tells now; nil after an error, and if the record has changed
	err     error
}

// acquire opens a layer or its tier, or adds a user to the open one.
func (c *Cache) acquire(ctx context.Context, layer string, tier bool) (*Lower, error) {
	for {
		l, f, err := c.find(layer, tier)
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-f.landed:
		case <-ctx.Done():
			c.leave(f)
			return nil, ctx.Err()
		}
		if f.lower != nil || f.err != nil {
			return f.lower, f.err
		}
	}
}

// find gives the open form that the record tells, or the flight that opens it, which the caller waits for or leaves.
func (c *Cache) find(layer string, tier bool) (*Lower, *flight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The record is read under the lock: swap changes the form under it.
	form, err := c.formOf(layer, tier)
	if err != nil {
		return nil, nil, err
	}
	key := form.Key()
	if l := c.entries[key]; l != nil {
		if l.is(form) {
			c.useLocked(l, 1)
			return l, nil, nil
		}
		delete(c.entries, key) // it has been merged, and is about to be dropped
		c.staleLocked(l)
	}
	f := c.flights[key]
	if f == nil || !sameForm(f.form, form) {
		ctx, cancel := context.WithCancel(context.Background()) // not that of the first: others may come to wait
		f = &flight{form: form, cancel: cancel, landed: make(chan struct{})}
		c.flights[key] = f
		c.landed.Go(func() {
			defer cancel()
			open, err := c.openForm(ctx, form)
			c.land(f, open, err)
		})
	}
	f.waiters++
	return nil, f, nil
}

// sameForm reports whether two forms with one key are the same on disk.
func sameForm(a, b catalog.Form) bool {
	return a.Upper == b.Upper && a.Image() == b.Image() && a.Below() == b.Below()
}

// land ends a flight, which gives all that wait for it a use of what it has opened.
func (c *Cache) land(f *flight, open *layers.Lower, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(f.landed)
	key := f.form.Key()
	if c.flights[key] == f {
		delete(c.flights, key)
	}
	form, gone := c.formOf(f.form.ID, f.form.AsTier)
	changed := gone != nil || !sameForm(f.form, form)
	if err != nil {
		if !changed {
			f.err = err
		}
		return
	}
	l := c.entries[key]
	switch {
	case changed || f.waiters == 0:
		c.closeLocked(open, key)
		return
	case l != nil && l.is(form): // it was sealed meanwhile
		c.closeLocked(open, key)
	default:
		c.dropLocked(key)
		l = newLower(form, open)
		c.entries[key] = l
	}
	c.useLocked(l, f.waiters)
	f.lower = l
}

// leave is called by a caller that does not wait for a flight any more.
func (c *Cache) leave(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-f.landed:
		if f.lower != nil {
			c.releaseLocked(f.lower)
		}
		return
	default:
	}
	if f.waiters--; f.waiters > 0 {
		return
	}
	f.cancel()
	if key := f.form.Key(); c.flights[key] == f {
		delete(c.flights, key)
	}
}
