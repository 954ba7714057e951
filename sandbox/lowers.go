package sandbox

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"

	"snapfs/chunkstore"
	"snapfs/internal/lockorder"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/uppers"
)

// lowerCache shares open layers between mounts, diffs, exports and the packer.
type lowerCache struct {
	home *Home
	most int // of idle ones

	mu      lockorder.Mutex[lockorder.Lowers]
	entries map[string]*lower // guarded by mu: by key of form, what to use now
	idle    *list.List        // guarded by mu: of *lower without users, the longest idle first
}

// lower is one open layer in one of its forms.
type lower struct {
	layer string // key of the form
	*layers.Lower
	upper    uint64        // directory of the sealed form
	manifest chunkstore.ID // of a stored form
	parent   string        // layer on which the form lies

	users int           // guarded by lowerCache.mu
	stale bool          // guarded by lowerCache.mu: replaced or deleted; goes with its last user
	place *list.Element // guarded by lowerCache.mu: in idle
}

func newLowerCache(h *Home) *lowerCache {
	return &lowerCache{home: h, most: idleLowers(), entries: map[string]*lower{}, idle: list.New()}
}

// stack is an open stack, topmost first. Its owner releases it.
type stack struct {
	cache *lowerCache
	of    []*lower
}

// lowers is what package layers takes; valid until release.
func (s *stack) lowers() []*layers.Lower {
	all := make([]*layers.Lower, len(s.of))
	for i, l := range s.of {
		all[i] = l.Lower
	}
	return all
}

// release gives the stack back; a second call does nothing.
func (s *stack) release() {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	for _, l := range s.of {
		s.cache.releaseLocked(l)
	}
	s.of = nil
}

// open opens the stack from a layer down, as few lowers as tiers allow.
func (c *lowerCache) open(ctx context.Context, top string) (*stack, error) {
	return c.openOver(ctx, top, "")
}

// openOver is open without tiers that reach from above the layer stop to below its top.
func (c *lowerCache) openOver(ctx context.Context, top, stop string) (*stack, error) {
	const attempts = 20
	for try := 1; ; try++ {
		forms, err := c.home.catalog.Forms(top, stop)
		if err != nil {
			return nil, err
		}
		s, err := c.openForms(ctx, forms)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		// Layers may have been merged meanwhile.
		now, ferr := c.home.catalog.Forms(top, stop)
		switch {
		case err == nil && ferr == nil && s.is(now):
			return s, nil
		case err == nil:
			s.release()
			err = fmt.Errorf("%w: the layers below %s are being merged", ErrConflict, top)
		}
		if ferr != nil || try == attempts {
			return nil, errors.Join(err, ferr)
		}
	}
}

// is tells whether a stack consists of these forms.
func (s *stack) is(forms []catalog.Form) bool {
	return slices.EqualFunc(s.of, forms, func(l *lower, f catalog.Form) bool {
		// A sealed directory and the image it becomes show the same.
		return l.layer == f.Key() && (l.upper != 0 && l.parent == f.Below() || l.upper == 0 && l.manifest == f.Image())
	})
}

func (c *lowerCache) openForms(ctx context.Context, forms []catalog.Form) (*stack, error) {
	s := &stack{cache: c}
	for _, f := range forms {
		err := ctx.Err()
		if err == nil {
			var l *lower
			if l, err = c.acquire(ctx, f.ID, f.AsTier); err == nil {
				s.of = append(s.of, l)
			}
		}
		if err != nil {
			s.release()
			return nil, err
		}
	}
	return s, nil
}

// acquire opens a layer or its tier, or adds a user to the open one.
func (c *lowerCache) acquire(ctx context.Context, layer string, tier bool) (*lower, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The record is read under the lock: swap changes the form under it.
	r := c.home.catalog.Layer(layer)
	if r == nil || tier && r.Tier == nil {
		return nil, fmt.Errorf("%w: layer %s is gone", ErrNotFound, layer)
	}
	f := r.Form(tier)
	if l := c.entries[f.Key()]; l != nil {
		if l.upper != 0 || l.manifest == f.Image() {
			c.useLocked(l)
			return l, nil
		}
		delete(c.entries, f.Key()) // it has been merged, and is about to be dropped
		c.staleLocked(l)
	}
	low, err := c.home.openLayer(ctx, f)
	if err != nil {
		return nil, err
	}
	l := &lower{layer: f.Key(), Lower: low, upper: r.Upper, manifest: f.Image(), parent: f.Below(), users: 1}
	c.entries[l.layer] = l
	return l, nil
}

// openLayer opens a layer in the form that its record tells.
func (h *Home) openLayer(ctx context.Context, r catalog.Form) (*layers.Lower, error) {
	if r.State == Sealed {
		low, err := layers.OpenSealed(r.ID, h.uppers.Path(r.Upper), uppers.InoBase(r.Upper), h.uppers.WideIno)
		if err != nil {
			return nil, classify(fmt.Errorf("opening sealed layer %s: %w", r.ID, err))
		}
		return low, nil
	}
	reader, err := h.store.OpenManifest(ctx, r.Image())
	if err != nil {
		return nil, classify(fmt.Errorf("opening layer %s: %w", r.ID, err))
	}
	low, err := layers.OpenImage(r.Key(), reader, r.Image())
	if err != nil {
		return nil, errors.Join(classify(fmt.Errorf("opening layer %s: %w", r.ID, err)), reader.Close())
	}
	return low, nil
}

// add enters a layer that was just sealed, with one user.
func (c *lowerCache) add(layer string, low *layers.Lower, upper uint64) *lower {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &lower{layer: layer, Lower: low, upper: upper, users: 1}
	if r := c.home.catalog.Layer(layer); r != nil {
		l.parent = r.Parent
	}
	if old := c.entries[layer]; old != nil {
		// The packer was quicker than the call that sealed the layer, and opened it by its record: share that one.
		c.useLocked(old)
		c.closeLocked(l)
		return old
	}
	c.entries[layer] = l
	return l
}

// swap makes the image the form of a layer to use from now on, with one user, and tells the form it was.
// The record must say so already.
func (c *lowerCache) swap(r *catalog.Layer, image *layers.Lower) (now, before *lower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.entries[r.ID]
	now = &lower{layer: r.ID, Lower: image, manifest: r.Manifest, parent: r.Parent, users: 1}
	c.entries[r.ID] = now
	if before != nil {
		c.staleLocked(before)
	}
	return now, before
}

// forget drops layers that have no record any more; who still uses one keeps it until he is done.
// Directories of sealed ones go to the janitor then.
func (c *lowerCache) forget(gone []*catalog.Layer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range gone {
		if r.Tier != nil {
			c.dropLocked(r.Form(true).Key())
		}
		l := c.entries[r.ID]
		if l == nil {
			if r.Upper != 0 {
				c.home.uppers.Discard(r.Upper)
			}
			continue
		}
		delete(c.entries, r.ID)
		c.staleLocked(l)
	}
}

// drop makes the next user of a form open it anew; who still uses it keeps it until he is done.
func (c *lowerCache) drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(key)
}

func (c *lowerCache) dropLocked(key string) {
	if l := c.entries[key]; l != nil {
		delete(c.entries, key)
		c.staleLocked(l)
	}
}

// retain adds a user.
func (c *lowerCache) retain(l *lower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.useLocked(l)
}

// release gives back one use.
func (c *lowerCache) release(l *lower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseLocked(l)
}

func (c *lowerCache) useLocked(l *lower) {
	l.users++
	if l.place != nil {
		c.idle.Remove(l.place)
		l.place = nil
	}
}

func (c *lowerCache) releaseLocked(l *lower) {
	if l.users--; l.users > 0 {
		return
	}
	if l.stale {
		c.retireLocked(l)
		return
	}
	l.place = c.idle.PushBack(l)
	for c.idle.Len() > c.most {
		if oldest, ok := c.idle.Remove(c.idle.Front()).(*lower); ok {
			oldest.place = nil
			delete(c.entries, oldest.layer)
			c.closeLocked(oldest)
		}
	}
}

// staleLocked marks a form that nobody will acquire again.
func (c *lowerCache) staleLocked(l *lower) {
	l.stale = true
	if l.place != nil {
		c.idle.Remove(l.place)
		l.place = nil
	}
	if l.users == 0 {
		c.retireLocked(l)
	}
}

// retireLocked closes a form that is never needed again.
func (c *lowerCache) retireLocked(l *lower) {
	c.closeLocked(l)
	if l.upper != 0 {
		c.home.uppers.Discard(l.upper)
	}
}

func (c *lowerCache) closeLocked(l *lower) {
	if err := l.Close(); err != nil {
		c.home.log.Warn("closing a layer", "layer", l.layer, "error", err)
	}
}

// close closes what is idle. Everything must have been released.
func (c *lowerCache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, l := range c.entries {
		errs = append(errs, l.Close())
	}
	clear(c.entries)
	c.idle.Init()
	return errors.Join(errs...)
}
