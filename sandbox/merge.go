package sandbox

import (
	"context"
	"errors"
	"fmt"

	"snapfs/chunkstore"
	"snapfs/internal/lockorder"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
)

// merger merges stored layers in the background: those that only one child names into that child, so that deleting
// snapshots frees what only they showed, and deep stacks into tiers. No data moves: a merged image consists of chunks that
// the store has.
//
// The image is committed first, with its number in the bucket merges, then the records change in one transaction. What
// a crash leaves in the bucket is removed by the next Open. Mounts take tiers for the layers that these stand
// for, in time; see live.refresh. Other layers that were merged they keep until they are unmounted.
type merger struct {
	home *Home
	wake chan struct{} // of capacity 1

	mu     lockorder.Mutex[lockorder.Merge] // held by the one merge
	merges *catalog.Merges                  // guarded by mu
}

func newMerger(h *Home) *merger {
	return &merger{home: h, wake: make(chan struct{}, 1), merges: h.catalog.Merges()}
}

func (g *merger) kick() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// run merges until the home is closed.
func (g *merger) run() {
	for {
		select {
		case <-g.home.ctx.Done():
			return
		case <-g.wake:
		}
		if err := g.all(g.home.ctx, catalog.BaseShare); err != nil && g.home.ctx.Err() == nil {
			g.home.log.Warn("layers could not be merged; they stay as they are", "error", err)
		}
	}
}

// all makes every merge that is due. Layers that only a child needs are merged into it when those above come to one of share
// parts of them, and to mergeMin; with 0, always.
func (g *merger) all(ctx context.Context, share int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for ctx.Err() == nil {
		j, ok := g.merges.Next(share)
		if !ok {
			break
		}
		if err := g.home.mergeLayers(ctx, j); err != nil && g.merges.Failed(j) {
			// Damage below, most likely, which Check tells: the others go on.
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// mergeLayers makes one merge.
func (h *Home) mergeLayers(ctx context.Context, j catalog.MergeJob) error {
	forms, err := h.catalog.Forms(j.Top.ID, "")
	if err != nil {
		return err
	}
	n := j.Tier
	if n == 0 {
		down := j.Rest[len(j.Rest)-1].Parent
		if forms, err = h.catalog.Forms(j.Top.ID, down); err != nil {
			return err
		}
		for n = 1; n < len(forms) && forms[n-1].Below() != down; n++ {
		}
		if n == 1 && forms[0].AsTier {
			// The tier is just what is wanted.
			return h.recordMerge(ctx, j, forms[:1], chunkstore.Manifest{ID: forms[0].Tier.Manifest, Size: forms[0].Tier.Size})
		}
	}
	s, err := h.cache.openForms(ctx, forms)
	if err != nil {
		return err
	}
	defer s.release()
	m, err := layers.Merge(ctx, h.store, s.lowers(), n, layers.PackOptions{Home: h.number}, func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		return catalog.NoteMerge(tx, m.ID)
	})
	if err != nil {
		return classify(fmt.Errorf("merging %d layers from %s down: %w", n, j.Top.ID, err))
	}
	h.points.At("merged image committed")
	return h.recordMerge(ctx, j, forms[:n], m)
}

// recordMerge makes an image take the place of the layers that were merged.
func (h *Home) recordMerge(ctx context.Context, j catalog.MergeJob, forms []catalog.Form, m chunkstore.Manifest) error {
	merged, err := h.catalog.RecordMerge(ctx, j, forms, m)
	if err != nil {
		return err
	}
	for _, key := range merged.Dropped {
		h.cache.drop(key)
	}
	h.cache.forget(merged.Gone)
	h.log.Debug("merged layers", "layer", j.Top.ID, "gone", len(merged.Gone), "forms", len(forms), "new", m.New)
	return nil
}
