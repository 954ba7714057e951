package layerstore

import (
	"context"
	"errors"
	"fmt"

	"snapfs/chunkstore"
	"snapfs/internal/lockorder"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/errclass"
)

// Merger merges stored layers in the background: those that only one child names into that child, so that deleting
// snapshots frees what only they showed, and deep stacks into tiers. No data moves: a merged image consists of chunks
// that the store has. Safe for concurrent use; Run is called once.
//
// The image is committed first, with a note of it, then the records change in one transaction. An image whose note is
// still there when the home is opened is removed. The stacks beneath mounts follow: see Stack.Refresh.
type Merger struct {
	Parts
	cache  *Cache
	merged func(context.Context)
	wake   chan struct{} // of capacity 1

	mu     lockorder.Mutex[lockorder.Merge] // held by the one merge
	merges *catalog.Merges                  // guarded by mu
}

// NewMerger makes a Merger, which works in Run and in All. After merges it calls merged, in the goroutine that has made
// them: stacks beneath mounts are to be refreshed.
func NewMerger(p Parts, c *Cache, merged func(context.Context)) *Merger {
	return &Merger{Parts: p, cache: c, merged: merged, wake: make(chan struct{}, 1), merges: p.Catalog.Merges()}
}

// Kick has Run look for merges that have become due.
func (g *Merger) Kick() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Run merges until ctx ends.
func (g *Merger) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.wake:
		}
		if err := g.All(ctx, catalog.BaseShare); err != nil && ctx.Err() == nil {
			g.Logger.Warn("layers could not be merged; they stay as they are", "error", err)
		}
	}
}

// All makes every merge that is due; share is as for catalog.Merges.Next.
func (g *Merger) All(ctx context.Context, share int64) error {
	made, err := g.all(ctx, share)
	if made > 0 {
		g.merged(ctx)
	}
	return err
}

// all is All, and counts the merges.
func (g *Merger) all(ctx context.Context, share int64) (made int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for ctx.Err() == nil {
		j, ok := g.merges.Next(share)
		if !ok {
			break
		}
		err := g.merge(ctx, j)
		if err == nil {
			made++
		} else if ctx.Err() == nil && g.merges.Failed(j) {
			// Damage below, most likely, which a check reports: the others go on.
			errs = append(errs, err)
		}
	}
	return made, errors.Join(append(errs, ctx.Err())...)
}

// merge makes one merge.
func (g *Merger) merge(ctx context.Context, j catalog.MergeJob) error {
	forms, err := g.Catalog.Forms(j.Top.ID, "")
	if err != nil {
		return err
	}
	n := j.Tier
	if n == 0 {
		down := j.Rest[len(j.Rest)-1].Parent
		if forms, err = g.Catalog.Forms(j.Top.ID, down); err != nil {
			return err
		}
		for n = 1; n < len(forms) && forms[n-1].Below() != down; n++ {
		}
		if n == 1 && forms[0].AsTier {
			// The tier is just what is wanted.
			tier := forms[0].Tier
			return g.replace(ctx, j, forms[:1], chunkstore.Manifest{ID: tier.Manifest, Size: tier.Size})
		}
	}
	s, err := g.cache.openForms(ctx, forms)
	if err != nil {
		return err
	}
	defer s.Release()
	m, err := layers.Merge(ctx, g.Store, s.Lowers(), n, layers.StoreOptions{Home: g.Number},
		func(tx *chunkstore.Tx, m chunkstore.Manifest) error { return catalog.NoteMerge(tx, m.ID) })
	if err != nil {
		return errclass.Mark(fmt.Errorf("merging %d layers from %s down: %w", n, j.Top.ID, err))
	}
	g.Points.At("merged image committed")
	return g.replace(ctx, j, forms[:n], m)
}

// replace makes an image take the place of the layers that were merged.
func (g *Merger) replace(ctx context.Context, j catalog.MergeJob, forms []catalog.Form, m chunkstore.Manifest) error {
	merged, err := g.Catalog.RecordMerge(ctx, j, forms, m)
	if err != nil {
		return err
	}
	for _, key := range merged.Dropped {
		g.cache.drop(key)
	}
	g.cache.Forget(merged.Gone)
	g.Logger.Debug("merged layers", "layer", j.Top.ID, "gone", len(merged.Gone), "forms", len(forms), "new", m.New)
	return nil
}
