package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"snapfs/sandbox/internal/catalog"
)

// keptLayers is how many of the topmost layers of a mounted workspace stay as they are when they get a tier: most rollbacks go to one of
// these.
const keptLayers = catalog.TierFan

// base is the topmost layer that a lower stands for.
func (l *lower) base() string {
	id, _, _ := strings.Cut(l.layer, "~")
	return id
}

// shortenLocked puts tiers in the place of the layers that they stand for, so that a workspace which stays mounted has no deeper stack than
// one that is mounted now. The caller holds stackMu, and uses the overlay.
func (l *live) shortenLocked(ctx context.Context) error {
	cache := l.stack.cache
	var errs []error
	for i := keptLayers; i < len(l.stack.of); i++ {
		r := cache.home.catalog.Layer(l.stack.of[i].base())
		if r == nil || r.Tier == nil || l.unfit[r.Form(true).Key()] {
			continue
		}
		n := l.rowLocked(i, r.Tier.Down)
		if n < 2 {
			continue
		}
		now, err := cache.acquire(ctx, r.ID, true)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if now.parent != r.Tier.Down { // it has just been made again
			cache.release(now)
			continue
		}
		if err := l.restackLocked(i, n, []*lower{now}); err != nil {
			l.unfit[now.layer] = true
			errs = append(errs, fmt.Errorf("putting the tier of layer %s beneath %s: %w", r.ID, l.workspace, err))
		}
	}
	return errors.Join(errs...)
}

// rowLocked is how many lowers from i on, all of them images, lie one on the other and on the layer down; 0 if they do not. stackMu is held.
func (l *live) rowLocked(i int, down string) int {
	for n, low := range l.stack.of[i:] {
		if low.upper != 0 {
			return 0
		}
		if low.parent == down {
			return n + 1
		}
		if i+n+1 == len(l.stack.of) || l.stack.of[i+n+1].base() != low.parent {
			return 0
		}
	}
	return 0
}

// restackLocked puts by, whose use passes to the stack, in the place of n lowers from i on. stackMu is held.
func (l *live) restackLocked(i, n int, by []*lower) error {
	cache := l.stack.cache
	row := &stack{cache: cache, of: slices.Clone(l.stack.of[i : i+n])}
	next := &stack{cache: cache, of: by}
	if err := l.overlay.Restack(row.lowers(), next.lowers(), row.release); err != nil {
		next.release()
		return err
	}
	l.stack.of = slices.Replace(l.stack.of, i, i+n, by...)
	return nil
}

// openTierLocked takes the tier apart in which a layer of the stack lies, so that files which are the same above and below that layer stay
// what they are when the workspace is rolled back to it. stackMu is held.
func (l *live) openTierLocked(ctx context.Context, layer string) error {
	cache := l.stack.cache
	for i, low := range l.stack.of {
		r := cache.home.catalog.Layer(low.base())
		if r == nil || r.Tier == nil || low.layer != r.Form(true).Key() || !cache.home.catalog.Crosses(r, layer) {
			continue
		}
		forms, err := cache.home.catalog.Forms(r.ID, layer)
		if err != nil {
			return err
		}
		end := slices.IndexFunc(forms, func(f catalog.Form) bool { return f.Below() == low.parent })
		if end < 0 {
			return nil
		}
		s, err := cache.openForms(ctx, forms[:end+1])
		if err != nil {
			return err
		}
		return l.restackLocked(i, 1, s.of)
	}
	return nil
}
