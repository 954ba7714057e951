package layerstore

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"snapfs/chunkstore"
	"snapfs/internal/failpoint"
	"snapfs/internal/lockorder"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/errclass"
	"snapfs/sandbox/internal/uppers"
)

// Parts are what of a home the package works with.
type Parts struct {
	Catalog *catalog.Catalog
	Store   *chunkstore.Store
	Uppers  *uppers.Set
	Number  uint64 // of the home, as images have it
	Logger  *slog.Logger
	Points  failpoint.Func // is told each durable step; nil but in tests of crashes
	// Source opens a layer in state api.Importing.
	Source func(ctx context.Context, r *catalog.Layer) (*layers.Lower, error)
}

// Cache shares open layers between mounts, comparisons, exports, storing and merging. Safe for concurrent use.
type Cache struct {
	Parts
	most int // Lowers in idle

	openForm func(ctx context.Context, f catalog.Form) (*layers.Lower, error) // from disk; replaced by tests only
	landed   sync.WaitGroup                                                   // flights

	mu      lockorder.Mutex[lockorder.Lowers]
	entries map[string]*Lower  // guarded by mu: by key of form, what to use now
	flights map[string]*flight // guarded by mu: by key of form, what is being opened
	idle    *list.List         // guarded by mu: of *Lower without users, the longest idle first
	// outdated are the stale Lowers, which have users, guarded by mu.
	outdated map[*Lower]struct{}
}

// NewCache makes an empty cache, which keeps most layers open after their last user is gone.
func NewCache(p Parts, most int) *Cache {
	c := &Cache{
		Parts: p, most: most, entries: map[string]*Lower{}, flights: map[string]*flight{}, idle: list.New(),
		outdated: map[*Lower]struct{}{},
	}
	c.openForm = c.openFromDisk
	return c
}

// Open opens the stack from a layer down, as few lowers as tiers allow.
func (c *Cache) Open(ctx context.Context, top string) (*Stack, error) {
	return c.OpenOver(ctx, top, "")
}

// OpenOver is Open without tiers that reach from above the layer stop to below its top.
func (c *Cache) OpenOver(ctx context.Context, top, stop string) (*Stack, error) {
	const attempts = 20
	for try := 1; ; try++ {
		forms, err := c.Catalog.Forms(top, stop)
		if err != nil {
			return nil, err
		}
		s, err := c.openForms(ctx, forms)
		if err != nil && !errors.Is(err, api.ErrNotFound) {
			return nil, err
		}
		// Layers may have been merged meanwhile.
		now, ferr := c.Catalog.Forms(top, stop)
		switch {
		case err == nil && ferr == nil && s.is(now):
			return s, nil
		case err == nil:
			s.Release()
			err = fmt.Errorf("%w: the layers below %s are being merged", api.ErrConflict, top)
		}
		if ferr != nil || try == attempts {
			return nil, errors.Join(err, ferr)
		}
	}
}

func (c *Cache) openForms(ctx context.Context, forms []catalog.Form) (*Stack, error) {
	s := &Stack{cache: c}
	for _, f := range forms {
		err := ctx.Err()
		if err == nil {
			var l *Lower
			if l, err = c.acquire(ctx, f.ID, f.AsTier); err == nil {
				s.of = append(s.of, l)
			}
		}
		if err != nil {
			s.Release()
			return nil, err
		}
	}
	return s, nil
}

// formOf is the form of a layer, or of its tier, that its record tells.
func (c *Cache) formOf(layer string, tier bool) (catalog.Form, error) {
	r := c.Catalog.Layer(layer)
	if r == nil || tier && r.Tier == nil {
		return catalog.Form{}, fmt.Errorf("%w: layer %s is gone", api.ErrNotFound, layer)
	}
	return r.Form(tier), nil
}

// openFromDisk opens a layer in the form that its record tells.
func (c *Cache) openFromDisk(ctx context.Context, f catalog.Form) (*layers.Lower, error) {
	switch f.State {
	case api.Importing:
		low, err := c.Source(ctx, f.Layer)
		if err != nil {
			return nil, errclass.Mark(fmt.Errorf("opening layer %s: %w", f.ID, err))
		}
		return low, nil
	case api.Sealed:
		low, err := layers.OpenSealed(f.ID, c.Uppers.Path(f.Upper), uppers.InoBase(f.Upper), c.Uppers.WideIno)
		if err != nil {
			return nil, errclass.Mark(fmt.Errorf("opening sealed layer %s: %w", f.ID, err))
		}
		return low, nil
	}
	reader, err := c.Store.OpenManifest(ctx, f.Image())
	if err != nil {
		return nil, errclass.Mark(fmt.Errorf("opening layer %s: %w", f.ID, err))
	}
	low, err := layers.OpenImage(f.Key(), reader, f.Image())
	if err != nil {
		return nil, errors.Join(errclass.Mark(fmt.Errorf("opening layer %s: %w", f.ID, err)), reader.Close())
	}
	return low, nil
}

// Add enters a layer that was just sealed, or opened for an import, with one user.
func (c *Cache) Add(layer string, open *layers.Lower, upper uint64) *Lower {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &Lower{key: layer, open: open, upper: upper, users: 1}
	if r := c.Catalog.Layer(layer); r != nil {
		l.parent = r.Parent
	}
	if old := c.entries[layer]; old != nil {
		// The Storer was quicker than the call that sealed the layer, and opened it by its record: share that one.
		c.useLocked(old, 1)
		c.closeLocked(open, layer)
		return old
	}
	c.entries[layer] = l
	return l
}

// swap makes the image the form of a layer to use from now on, with one user. The record must say so already.
func (c *Cache) swap(r *catalog.Layer, image *layers.Lower) *Lower {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.entries[r.ID]
	now := newLower(r.Form(false), image)
	now.users = 1
	c.entries[r.ID] = now
	if before != nil {
		c.staleLocked(before)
	}
	return now
}

// Forget drops layers that have no record any more; their users keep them until they are done. Directories of sealed
// ones are removed then.
func (c *Cache) Forget(gone []*catalog.Layer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range gone {
		if r.Tier != nil {
			c.dropLocked(r.Form(true).Key())
		}
		l := c.entries[r.ID]
		if l == nil {
			if r.Upper != 0 {
				c.Uppers.Discard(r.Upper)
			}
			continue
		}
		delete(c.entries, r.ID)
		c.staleLocked(l)
	}
}

// drop makes the next user of a form open it anew; its present users keep it until they are done.
func (c *Cache) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(key)
}

func (c *Cache) dropLocked(key string) {
	if l := c.entries[key]; l != nil {
		delete(c.entries, key)
		c.staleLocked(l)
	}
}

// stale tells which of these have been replaced, or their layers deleted; nil for none.
func (c *Cache) stale(of []*Lower) map[*Lower]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.outdated) == 0 {
		return nil
	}
	var stale map[*Lower]bool
	for _, l := range of {
		if l.stale {
			if stale == nil {
				stale = map[*Lower]bool{}
			}
			stale[l] = true
		}
	}
	return stale
}

// Retain adds a user.
func (c *Cache) Retain(l *Lower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.useLocked(l, 1)
}

// Release gives back one use.
func (c *Cache) Release(l *Lower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseLocked(l)
}

func (c *Cache) useLocked(l *Lower, users int) {
	l.users += users
	if l.idle != nil {
		c.idle.Remove(l.idle)
		l.idle = nil
	}
}

func (c *Cache) releaseLocked(l *Lower) {
	if l.users--; l.users > 0 {
		return
	}
	if l.stale {
		c.retireLocked(l)
		return
	}
	l.idle = c.idle.PushBack(l)
	for c.idle.Len() > c.most {
		if oldest, ok := c.idle.Remove(c.idle.Front()).(*Lower); ok {
			oldest.idle = nil
			delete(c.entries, oldest.key)
			c.closeLocked(oldest.open, oldest.key)
		}
	}
}

// staleLocked marks a form that no caller acquires any more.
func (c *Cache) staleLocked(l *Lower) {
	l.stale = true
	if l.idle != nil {
		c.idle.Remove(l.idle)
		l.idle = nil
	}
	if l.users == 0 {
		c.retireLocked(l)
		return
	}
	c.outdated[l] = struct{}{}
}

// retireLocked closes a form that is never needed any more.
func (c *Cache) retireLocked(l *Lower) {
	delete(c.outdated, l)
	c.closeLocked(l.open, l.key)
	if l.upper != 0 {
		c.Uppers.Discard(l.upper)
	}
}

func (c *Cache) closeLocked(open *layers.Lower, key string) {
	if err := open.Close(); err != nil {
		c.Logger.Warn("closing a layer", "layer", key, "error", err)
	}
}

// Close waits for flights and closes what is idle. Everything must have been released.
func (c *Cache) Close() error {
	c.landed.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, l := range c.entries {
		errs = append(errs, l.open.Close())
	}
	clear(c.entries)
	c.idle.Init()
	return errors.Join(errs...)
}
