package layerstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// Overlay is what a stack lies beneath, a *layers.Overlay.
type Overlay interface {
	Replace(now *layers.Lower) error
	Restack(row, by []*layers.Lower, released func(i int)) error
}

// keptLayers is how many of the topmost layers beneath a running overlay stay as they are when they get a tier: most
// rollbacks go to one of these.
const keptLayers = catalog.TierFan

// Refresh makes the stack beneath the running overlay the one that the records tell: every sealed directory that has
// become an image is replaced, rows of layers of which some were merged go for what they were merged into, and rows that
// have a tier for that, so that a workspace which stays mounted has no deeper stack than one that is mounted now and
// keeps nothing in the store that nothing names. What the overlay has not taken is not tried again unless retry is set.
// With an error the stack shows the same, with some of the layers that it had.
func (s *Stack) Refresh(ctx context.Context, o Overlay, retry bool) error {
	if retry {
		clear(s.unfit)
	}
	return errors.Join(s.follow(ctx, o), s.shorten(ctx, o))
}

// follow puts what the records name in the place of lowers that they do not name any more.
func (s *Stack) follow(ctx context.Context, o Overlay) error {
	stale := s.cache.stale(s.of)
	if len(stale) == 0 {
		return nil
	}
	var errs []error
	var gone *Lower
	for i := 0; i < len(s.of); i++ {
		old := s.of[i]
		if !stale[old] {
			continue
		}
		replaced, err := s.replace(ctx, o, i)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if replaced || s.unfit[old.key] != nil {
			continue
		}
		if s.cache.Catalog.Layer(old.layer()) == nil {
			gone = old // it went into one above, which the overlay has not taken
			continue
		}
		n, err := s.advance(ctx, o, i)
		if ctx.Err() != nil {
			return errors.Join(append(errs, err)...)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		i += n - 1
	}
	if gone != nil && len(errs) == 0 && len(s.unfit) == 0 {
		errs = append(errs, fmt.Errorf("layer %s is gone, and no layer above has taken it in", gone.key))
	}
	return errors.Join(errs...)
}

// replace puts the image of a layer in the place of its directory, if nothing else about the layer has changed.
func (s *Stack) replace(ctx context.Context, o Overlay, i int) (bool, error) {
	old := s.of[i]
	if old.upper == 0 {
		return false, nil
	}
	if r := s.cache.Catalog.Layer(old.key); r == nil || r.Parent != old.parent {
		return false, nil
	}
	now, err := s.cache.acquire(ctx, old.key, false)
	if err != nil {
		return false, err
	}
	if now.parent != old.parent { // it has just been merged
		s.cache.Release(now)
		return false, nil
	}
	if err := o.Replace(now.open); err != nil {
		s.cache.Release(now)
		return false, fmt.Errorf("replacing sealed layer %s: %w", old.key, err)
	}
	s.swap(i, 1, &Stack{cache: s.cache, of: []*Lower{now}}).Release()
	return true, nil
}

// advance puts in the place of the lower i and some of those below it what the records have there now. It tells how
// many lowers came.
func (s *Stack) advance(ctx context.Context, o Overlay, i int) (int, error) {
	const attempts = 20
	for try := 1; ; try++ {
		n, forms, err := s.successor(i)
		if err != nil {
			return 0, err
		}
		by, err := s.cache.openForms(ctx, forms)
		if err == nil && !by.is(forms) {
			by.Release()
			err = fmt.Errorf("%w: the layers below %s are being merged", api.ErrConflict, s.of[i].key)
		} else if err == nil {
			return len(forms), s.restack(o, i, n, by)
		}
		// More may have been merged meanwhile.
		if _, now, nerr := s.successor(i); try == attempts || nerr == nil && slices.EqualFunc(now, forms, sameForm) {
			return 0, err
		}
	}
}

// successor finds the forms that the records have for the layer of lower i, down to where the stack and the records
// meet again, and how many lowers they stand for. Layers of which some are merged show the same trees.
func (s *Stack) successor(i int) (n int, forms []catalog.Form, err error) {
	ends := map[string]int{} // by the layer on which a lower lies, how many there are to there
	for k, l := range s.of[i:] {
		if _, met := ends[l.parent]; !met {
			ends[l.parent] = k + 1
		}
	}
	forms, err = s.cache.Catalog.FormsTo(s.of[i].layer(),
		func(k int, f catalog.Form) bool {
			return (i+k >= keptLayers || k == 0 && s.of[i].key != s.of[i].layer()) && s.unfit[f.Key()] == nil
		},
		func(layer string) bool { return ends[layer] > 0 })
	if err != nil {
		return 0, nil, err
	}
	return ends[forms[len(forms)-1].Below()], forms, nil
}

// shorten puts tiers in the place of the layers that they stand for.
func (s *Stack) shorten(ctx context.Context, o Overlay) error {
	var errs []error
	for i := keptLayers; i < len(s.of); i++ {
		r := s.cache.Catalog.Layer(s.of[i].layer())
		if r == nil || r.Tier == nil || s.unfit[r.Form(true).Key()] != nil {
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
		by := &Stack{cache: s.cache, of: []*Lower{now}}
		if now.parent != r.Tier.Down { // it has just been made anew
			by.Release()
			continue
		}
		if err := s.restack(o, i, n, by); err != nil {
			errs = append(errs, err)
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

// Adopt puts l, whose use passes to the stack, on top, in the place of a lower that the overlay has opened itself. With
// an error nothing has changed.
func (s *Stack) Adopt(o Overlay, own *layers.Lower, l *Lower) error {
	if err := o.Restack([]*layers.Lower{own}, []*layers.Lower{l.open}, nil); err != nil {
		return err
	}
	s.Push(l)
	return nil
}

// restack puts by, which passes to the stack, in the place of n lowers from i on. These stay as long as deleted files
// that are open lie in them. An error is noted in unfit.
func (s *Stack) restack(o Overlay, i, n int, by *Stack) error {
	row := &Stack{cache: s.cache, of: slices.Clone(s.of[i : i+n]), hold: s.hold}
	was := s.hold
	if was != (Hold{}) {
		row.Hold(Hold{Workspace: was.Workspace, Deleted: true})
	}
	if err := o.Restack(row.Lowers(), by.Lowers(), row.releaseOne); err != nil {
		row.Hold(was)
		err = fmt.Errorf("putting layer %s in the place of %d: %w", by.of[0].key, n, err)
		if s.unfit == nil {
			s.unfit = map[string]error{}
		}
		s.unfit[s.of[i].key], s.unfit[by.of[0].key] = err, err
		by.Release()
		return err
	}
	s.swap(i, n, by)
	return nil
}

// swap has by, which passes to the stack, in the place of n lowers from i on, and gives these.
func (s *Stack) swap(i, n int, by *Stack) *Stack {
	by.Hold(s.hold)
	row := &Stack{cache: s.cache, of: slices.Clone(s.of[i : i+n]), hold: s.hold}
	s.of = slices.Replace(s.of, i, i+n, by.of...)
	return row
}

// releaseOne gives back one of the lowers.
func (s *Stack) releaseOne(i int) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	s.of[i].note(s.hold, -1)
	s.cache.releaseLocked(s.of[i])
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
		return s.restack(o, i, 1, parts)
	}
	return nil
}
