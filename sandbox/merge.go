package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/api"
)

func mergeKey(m chunkstore.ID) string { return strconv.FormatUint(uint64(m), 10) }

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

	mu    sync.Mutex      // held by the one merge
	seen  map[string]bool // guarded by mu: layers that could not be merged
	whole bool            // guarded by mu: all layers have been looked at since the home was opened
	due   map[string]bool // guarded by mu: layers to be looked at since then
}

func newMerger(h *Home) *merger {
	return &merger{home: h, wake: make(chan struct{}, 1), seen: map[string]bool{}, due: map[string]bool{}}
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
		if err := g.all(g.home.ctx, baseShare); err != nil && g.home.ctx.Err() == nil {
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
		j, ok := g.next(share)
		if !ok {
			break
		}
		if err := g.home.mergeLayers(ctx, j); err != nil && g.home.catalog.layer(j.top.ID) == j.top {
			// Damage below, most likely, which Check tells: the others go on.
			g.seen[j.top.ID] = true
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// mergeJob is a row of layers to be merged.
type mergeJob struct {
	top  *layerRecord
	rest []*layerRecord // below it, that go; nil for a tier
	tier int            // forms that the tier stands for
}

// next finds a merge that is due, among the layers that were touched since it found none; among all of them the first time, and with
// share 0, which more layers can meet. The caller holds mu.
func (g *merger) next(share int64) (mergeJob, bool) {
	c := g.home.catalog
	c.takeTouched(g.due)
	var all []*layerRecord
	if share == 0 || !g.whole {
		all = c.allLayers()
	} else {
		all = c.layersOf(g.due)
	}
	for _, l := range all {
		if l.State != Stored || g.seen[l.ID] {
			continue
		}
		if rest := c.swallowed(l, share); len(rest) > 0 {
			return mergeJob{top: l, rest: rest}, true
		}
	}
	for _, l := range all {
		if l.State != Stored || l.Tier != nil || g.seen[l.ID] || c.isPinned(l.ID) {
			continue
		}
		forms, err := c.forms(l.ID, "")
		if err == nil {
			if n := tierOf(forms); n > 1 {
				return mergeJob{top: l, tier: n}, true
			}
		}
	}
	g.whole = true
	clear(g.due)
	return mergeJob{}, false
}

// swallowed lists the layers below a stored one that only it needs, as far as they are to be merged into it. A layer
// that is one of those itself has none: they are for the topmost.
func (c *catalog) swallowed(top *layerRecord, share int64) []*layerRecord {
	c.writer.Lock()
	defer c.writer.Unlock()
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.pinned[top.ID] || c.onlyChildLocked(top) {
		return nil
	}
	var rest []*layerRecord
	due, above := 0, top.Size
	for l := top; ; {
		below := c.layers[l.Parent]
		if below == nil || below.State != Stored || c.pinned[below.ID] || !c.heldOnlyLocked(below.ID, l.ID) {
			break
		}
		rest = append(rest, below)
		if share == 0 || above >= mergeMin && above*share >= below.Size {
			due = len(rest)
		}
		above += below.Size
		l = below
	}
	return rest[:due]
}

// onlyChildLocked tells whether nobody but one stored layer names a layer. mu is held.
func (c *catalog) onlyChildLocked(l *layerRecord) bool {
	for h := range c.holders[l.ID] {
		child := c.layers[h.id]
		return h.kind == 'l' && len(c.holders[l.ID]) == 1 && child != nil && child.State == Stored && !c.pinned[child.ID]
	}
	return false
}

// heldOnlyLocked tells whether nobody but a child names a layer. mu is held.
func (c *catalog) heldOnlyLocked(layer, child string) bool {
	return len(c.holders[layer]) == 1 && c.holders[layer][holder{'l', child}]
}

// mergeLayers makes one merge.
func (h *Home) mergeLayers(ctx context.Context, j mergeJob) error {
	forms, err := h.catalog.forms(j.top.ID, "")
	if err != nil {
		return err
	}
	n := j.tier
	if n == 0 {
		down := j.rest[len(j.rest)-1].Parent
		if forms, err = h.catalog.forms(j.top.ID, down); err != nil {
			return err
		}
		for n = 1; n < len(forms) && forms[n-1].below() != down; n++ {
		}
		if n == 1 && forms[0].tier {
			// The tier is just what is wanted.
			return h.record(ctx, j, forms[:1], chunkstore.Manifest{ID: forms[0].Tier.Manifest, Size: forms[0].Tier.Size})
		}
	}
	s, err := h.cache.openForms(ctx, forms)
	if err != nil {
		return err
	}
	defer s.release()
	m, err := layers.Merge(ctx, h.store, s.lowers(), n, layers.PackOptions{Home: h.number}, func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		return tx.Put(bucketMerges, mergeKey(m.ID), nil)
	})
	if err != nil {
		return classify(fmt.Errorf("merging %d layers from %s down: %w", n, j.top.ID, err))
	}
	h.points.At("merged image committed")
	return h.record(ctx, j, forms[:n], m)
}

// record makes an image take the place of a row of layers, if that is still as it was when the merge began.
func (h *Home) record(ctx context.Context, j mergeJob, forms []form, m chunkstore.Manifest) error {
	var dropped []string // forms that are not to be opened again
	bottom := forms[len(forms)-1]
	gone, err := h.catalog.update(ctx, true, func(ch *change) error {
		dropped = nil
		ch.delMerges = append(ch.delMerges, m.ID)
		if !h.catalog.unchanged(j) {
			if m.ID != j.tierManifest() {
				ch.delManifests = append(ch.delManifests, m.ID)
			}
			return nil
		}
		next := *j.top
		if j.rest == nil {
			next.Tier = &tierRecord{Manifest: m.ID, Size: m.Size, Down: bottom.below()}
			for _, f := range forms {
				next.Tier.Span += f.span()
			}
			ch.putLayers = append(ch.putLayers, &next)
			return nil
		}
		if m.ID == j.tierManifest() {
			next.Tier = nil // it becomes the image
			dropped = append(dropped, form{j.top, true}.key())
		}
		next.Parent, next.Manifest, next.Size, next.Digest = bottom.below(), m.ID, m.Size, hex.EncodeToString(m.Digest[:])
		ch.delManifests = append(ch.delManifests, j.top.Manifest)
		dropped = append(dropped, j.top.ID)
		ch.putLayers = append(ch.putLayers, &next)
		h.catalog.detach(ch, &next, j.rest, &dropped)
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range dropped {
		h.cache.drop(key)
	}
	h.cache.forget(gone)
	h.log.Debug("merged layers", "layer", j.top.ID, "gone", len(gone), "forms", len(forms), "new", m.New)
	return nil
}

// tierManifest is the image of the top layer's tier; 0 if it has none.
func (j mergeJob) tierManifest() chunkstore.ID {
	if j.top.Tier == nil {
		return 0
	}
	return j.top.Tier.Manifest
}

// unchanged tells whether the records of a merge are those that it began with. The caller holds writer.
func (c *catalog) unchanged(j mergeJob) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.layers[j.top.ID] != j.top || c.pinned[j.top.ID] {
		return false
	}
	for i, l := range j.rest {
		child := j.top
		if i > 0 {
			child = j.rest[i-1]
		}
		if c.layers[l.ID] != l || c.pinned[l.ID] || !c.heldOnlyLocked(l.ID, child.ID) {
			return false
		}
	}
	return true
}

// detach adds to a change what else knows layers that are merged into next: tiers that end on one of them go, and snapshots
// that are compared with one are compared with what is below from now on. The caller holds writer.
func (c *catalog) detach(ch *change, next *layerRecord, rest []*layerRecord, dropped *[]string) {
	going := map[string]bool{}
	for _, l := range rest {
		going[l.ID] = true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, l := range c.layers {
		if l.Tier == nil || !going[l.Tier.Down] || going[l.ID] {
			continue
		}
		ch.delManifests = append(ch.delManifests, l.Tier.Manifest)
		*dropped = append(*dropped, form{l, true}.key())
		if l.ID == next.ID {
			next.Tier = nil
			continue
		}
		without := *l
		without.Tier = nil
		ch.putLayers = append(ch.putLayers, &without)
	}
	for _, s := range c.snapshots {
		if going[s.ParentTop] {
			moved := *s
			moved.ParentTop = next.Parent
			ch.putSnapshots = append(ch.putSnapshots, &moved)
		}
	}
}

// sweepMerges removes merged images that a crash kept from being named.
func (h *Home) sweepMerges(ctx context.Context) error {
	var pending map[chunkstore.ID]bool
	err := h.store.View(ctx, func(tx *chunkstore.Tx) (err error) {
		pending, err = pendingMerges(tx)
		return err
	})
	if err != nil || len(pending) == 0 {
		return classify(err)
	}
	_, err = h.catalog.update(ctx, true, func(ch *change) error {
		for m := range pending {
			ch.delMerges = append(ch.delMerges, m)
			ch.delManifests = append(ch.delManifests, m)
		}
		return nil
	})
	return err
}

// pendingMerges lists merged images that no layer names yet.
func pendingMerges(tx *chunkstore.Tx) (map[chunkstore.ID]bool, error) {
	pending := map[chunkstore.ID]bool{}
	err := tx.Scan(bucketMerges, "", func(key string, _ []byte) (bool, error) {
		n, err := strconv.ParseUint(key, 10, 64)
		if err != nil {
			return false, fmt.Errorf("%w: record %s/%s", ErrCorrupt, bucketMerges, api.Quoted(key))
		}
		pending[chunkstore.ID(n)] = true
		return true, nil
	})
	return pending, err
}
