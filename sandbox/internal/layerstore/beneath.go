package layerstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
)

// Overlay is what a stack lies beneath, a *layers.Overlay.
type Overlay interface {
	Replace(now *layers.Lower) error
	Restack(row, by []*layers.Lower, released func()) error
}

// keptLayers is how many of the topmost layers beneath a running overlay stay as they are when they get a tier: most
// rollbacks go to one of these.
const keptLayers = catalog.TierFan

// Refresh replaces, beneath the running overlay, every sealed directory that has become an image, and rows of layers
// that have a tier, so that a workspace which stays mounted has no deeper stack than one that is mounted now.
func (s *Stack) Refresh(ctx context.Context, o Overlay) error {
	for i, old := range s.of {
		if old.upper == 0 || !s.cache.isStale(old) {
			continue
		}
		if r := s.cache.Catalog.Layer(old.key); r == nil || r.Parent != old.parent {
			continue
		}
		now, err := s.cache.acquire(ctx, old.key, false)
		if err != nil {
			return err
		}
		if now.parent != old.parent { // it has just been merged
			s.cache.Release(now)
			continue
		}
		if err := o.Replace(now.open); err != nil {
			s.cache.Release(now)
			return fmt.Errorf("replacing sealed layer %s: %w", old.key, err)
		}
		s.of[i] = now
		s.cache.Release(old)
	}
	return s.shorten(ctx, o)
}

// shorten puts tiers in the place of the layers that they stand for.
func (s *Stack) shorten(ctx context.Context, o Overlay) error {
	var errs []error
	for i := keptLayers; i < len(s.of); i++ {
		r := s.cache.Catalog.Layer(s.of[i].layer())
		if r == nil || r.Tier == nil || s.unfit[r.Form(true).Key()] {
			continue
		}
		n := s.row(i, r.Tier.Down)
		if n < 2 {
			continue
		}
		now, err := s.cache.acquire(ctx, r.ID, true)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if now.parent != r.Tier.Down { // it has just been made anew
			s.cache.Release(now)
			continue
		}
		if err := s.restack(o, i, n, []*Lower{now}); err != nil {
			if s.unfit == nil {
				s.unfit = map[string]bool{}
			}
			s.unfit[now.key] = true
			errs = append(errs, fmt.Errorf("putting the tier of layer %s in place: %w", r.ID, err))
		}
	}
	return errors.Join(errs...)
}

// row is how many lowers from i on, all of them images, lie one on the other and on the layer down; 0 if they do not.
func (s *Stack) row(i int, down string) int {
	for n, l := range s.of[i:] {
		if l.upper != 0 {
			return 0
		}
		if l.parent == down {
			return n + 1
		}
		if i+n+1 == len(s.of) || s.of[i+n+1].layer() != l.parent {
			return 0
		}
	}
	return 0
}

// restack puts by, whose use passes to the stack, in the place of n lowers from i on.
func (s *Stack) restack(o Overlay, i, n int, by []*Lower) error {
	row := &Stack{cache: s.cache, of: slices.Clone(s.of[i : i+n])}
	next := &Stack{cache: s.cache, of: by}
	if err := o.Restack(row.Lowers(), next.Lowers(), row.Release); err != nil {
		next.Release()
		return err
	}
	s.of = slices.Replace(s.of, i, i+n, by...)
	return nil
}

// Split takes the tier apart in which a layer lies beneath the running overlay, so that files which are the same above
// and below that layer stay what they are when the workspace is rolled back to it.
func (s *Stack) Split(ctx context.Context, o Overlay, layer string) error {
	for i, l := range s.of {
		r := s.cache.Catalog.Layer(l.layer())
		if r == nil || r.Tier == nil || l.key != r.Form(true).Key() || !s.cache.Catalog.Crosses(r, layer) {
			continue
		}
		forms, err := s.cache.Catalog.Forms(r.ID, layer)
		if err != nil {
			return err
		}
		end := slices.IndexFunc(forms, func(f catalog.Form) bool { return f.Below() == l.parent })
		if end < 0 {
			return nil
		}
		parts, err := s.cache.openForms(ctx, forms[:end+1])
		if err != nil {
			return err
		}
		return s.restack(o, i, 1, parts.of)
	}
	return nil
}
