package catalog

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// MergeJob is a row of layers to be merged.
type MergeJob struct {
	Top  *Layer
	Rest []*Layer // below it, that go; nil for a tier
	Tier int      // forms that the tier stands for
}

// Merges finds the merges that are due. It is used by one goroutine at a time. What one change makes due is found
// without looking at the other layers: a row of layers may be due whose topmost one stands on the layer that has
// changed, over layers that only their children need, and the tier of any layer above.
type Merges struct {
	catalog *Catalog
	failed  map[string]bool // layers that could not be merged
	begun   bool            // all layers are looked at, or were: since the catalog was opened
	all     bool            // all layers are looked at, with share 0

	rows  dueList         // layers to be looked at, that may be the topmost of a row
	roots map[string]bool // layers with all above which are to be in tiers
	tiers dueList         // layers to be looked at, that may need a tier; of each there is, all above are, too
}

// Merges looks for merges among all layers first.
func (c *Catalog) Merges() *Merges {
	return &Merges{catalog: c, failed: map[string]bool{}, roots: map[string]bool{}}
}

// Next finds a merge that is due, among the layers that were touched since it found none; among all of them the first
// time, and with share 0, which more layers can meet. It finds the same once more until the merge is made or has failed.
// Layers that only a child needs are merged into it when those above come to one of share parts of them, and to
// mergeMin; with 0, always.
func (g *Merges) Next(share int64) (MergeJob, bool) {
	if !g.begun || share == 0 && !g.all {
		g.begun, g.all = true, share == 0
		for _, l := range g.catalog.Layers() {
			g.rows.add(l.ID)
			g.tiers.add(l.ID)
		}
	}
	if share != 0 {
		g.all = false // what is passed over now may be due with share 0
	}
	g.take()
	if j, ok := g.nextRow(share); ok {
		return j, true
	}
	g.above()
	if j, ok := g.nextTier(); ok {
		return j, true
	}
	g.all = false
	return MergeJob{}, false
}

// take enters what was touched.
func (g *Merges) take() {
	c := g.catalog
	touched := c.takeTouched()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id := range touched {
		g.roots[id] = true
		n := c.index.nodes[id]
		for ; n != nil && n.layer != nil; n = n.onlyChild() {
			g.rows.add(n.id)
		}
	}
}

// above enters the layers above what was touched, those that are touched themselves included.
func (g *Merges) above() {
	c := g.catalog
	c.mu.RLock()
	defer c.mu.RUnlock()
	for id := range g.roots {
		n := c.index.nodes[id]
		if n == nil {
			continue
		}
		for queue := []*node{n}; len(queue) > 0; {
			n := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			if n.layer == nil || g.tiers.add(n.id) {
				queue = append(queue, n.children...)
			}
		}
	}
	clear(g.roots)
}

// nextRow finds a row of layers that is due.
func (g *Merges) nextRow(share int64) (MergeJob, bool) {
	for {
		id := g.rows.first()
		if id == "" {
			return MergeJob{}, false
		}
		l := g.catalog.Layer(id)
		if l != nil && l.State == api.Stored && !g.failed[id] {
			if rest := g.catalog.swallowed(l, share); len(rest) > 0 {
				return MergeJob{Top: l, Rest: rest}, true
			}
		}
		g.rows.drop()
	}
}

// nextTier finds a tier that is due.
func (g *Merges) nextTier() (MergeJob, bool) {
	c := g.catalog
	for {
		id := g.tiers.first()
		if id == "" {
			return MergeJob{}, false
		}
		l := c.Layer(id)
		if l != nil && l.State == api.Stored && l.Tier == nil && !g.failed[id] && !c.Pinned(id) {
			forms, err := c.Forms(id, "")
			if err == nil {
				if n := tierOf(forms); n > 1 {
					return MergeJob{Top: l, Tier: n}, true
				}
			}
		}
		g.tiers.drop()
	}
}

// Failed notes that a merge has failed: it is not found again. False if it failed because its topmost layer has changed
// meanwhile.
func (g *Merges) Failed(j MergeJob) bool {
	if g.catalog.Layer(j.Top.ID) != j.Top {
		return false
	}
	g.failed[j.Top.ID] = true
	return true
}

// swallowed lists the layers below a stored one that only it needs, as far as they are to be merged into it. A layer
// that is one of those itself has none: they are for the topmost.
func (c *Catalog) swallowed(top *Layer, share int64) []*Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n := c.index.nodes[top.ID]
	if c.pinned[top.ID] || n == nil || c.mergesIntoChild(n) {
		return nil
	}
	var rest []*Layer
	due, above := 0, top.Size
	for below := n.parent; below != nil && below.onlyChild() == n; n, below = below, below.parent {
		if below.layer == nil || below.layer.State != api.Stored || c.pinned[below.id] || below.layer.stays() {
			break
		}
		rest = append(rest, below.layer)
		if share == 0 || above >= mergeMin && above*share >= below.layer.Size {
			due = len(rest)
		}
		above += below.layer.Size
	}
	return rest[:due]
}

// mergesIntoChild reports whether nothing but one stored layer names a layer. The caller holds mu.
func (c *Catalog) mergesIntoChild(n *node) bool {
	child := n.onlyChild()
	return child != nil && !n.layer.stays() && child.layer.State == api.Stored && !c.pinned[child.id]
}

// NoteMerge adds to a transaction that an image is stored which no layer names yet; RecordMerge removes the note.
func NoteMerge(tx *chunkstore.Tx, image chunkstore.ID) error {
	return tx.Put(bucketMerges, mergeKey(image), nil)
}

func mergeKey(m chunkstore.ID) string { return strconv.FormatUint(uint64(m), 10) }

// Merged is what RecordMerge did.
type Merged struct {
	Gone    []*Layer // without a record now
	Dropped []string // keys of forms that are not to be opened again
}

// RecordMerge makes an image take the place of a row of layers, which were opened as forms, if that is still as it was
// when the merge began; else the image is removed.
func (c *Catalog) RecordMerge(
	ctx context.Context, j MergeJob, forms []Form, image chunkstore.Manifest,
) (Merged, error) {
	var m Merged
	bottom := forms[len(forms)-1]
	if err := c.compareBelow(ctx, j, bottom.Below()); err != nil {
		return Merged{}, err
	}
	gone, err := c.Update(ctx, true, func(ch *Change) error {
		ch.delMerges = append(ch.delMerges, image.ID)
		if !c.unchanged(j) {
			if image.ID != j.tierManifest() {
				ch.delManifests = append(ch.delManifests, image.ID)
			}
			return nil
		}
		next := *j.Top
		if j.Rest == nil {
			next.Tier = &Tier{Manifest: image.ID, Size: image.Size, Down: bottom.Below()}
			for _, f := range forms {
				next.Tier.Span += f.Span()
			}
			ch.PutLayers = append(ch.PutLayers, &next)
			return nil
		}
		if image.ID == j.tierManifest() {
			next.Tier = nil // it becomes the image
			m.Dropped = append(m.Dropped, j.Top.Form(true).Key())
		}
		next.Parent = bottom.Below()
		next.Manifest, next.Size, next.Digest = image.ID, image.Size, hex.EncodeToString(image.Digest[:])
		ch.delManifests = append(ch.delManifests, j.Top.Manifest)
		m.Dropped = append(m.Dropped, j.Top.ID)
		ch.PutLayers = append(ch.PutLayers, &next)
		c.detach(ch, &next, j.Rest, &m.Dropped)
		return nil
	})
	if err != nil {
		return Merged{}, err
	}
	m.Gone = gone
	return m, nil
}

// tierManifest is the image of the top layer's tier; 0 if it has none.
func (j MergeJob) tierManifest() chunkstore.ID {
	if j.Top.Tier == nil {
		return 0
	}
	return j.Top.Tier.Manifest
}

// unchanged is unchangedLocked for a caller that holds writer, and not mu.
func (c *Catalog) unchanged(j MergeJob) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.unchangedLocked(j)
}

// unchangedLocked reports whether the records of a merge are those that it began with. The caller holds mu.
func (c *Catalog) unchangedLocked(j MergeJob) bool {
	n := c.index.nodes[j.Top.ID]
	if n == nil || n.layer != j.Top || c.pinned[n.id] {
		return false
	}
	for _, l := range j.Rest {
		below := n.parent
		if below == nil || below.layer != l || c.pinned[l.ID] || below.onlyChild() != n {
			return false
		}
		n = below
	}
	return true
}

// maxCompared bounds the snapshots that the transaction of a merge changes.
const maxCompared = 500

// compareBelow leaves at most maxCompared snapshots that are compared with layers that a merge removes. The others are
// compared with what is below from now on, which holds whether the merge is recorded or not.
func (c *Catalog) compareBelow(ctx context.Context, j MergeJob, below string) error {
	some := func() []*Snapshot {
		c.mu.RLock()
		defer c.mu.RUnlock()
		if !c.unchangedLocked(j) {
			return nil
		}
		_, compared := c.knownBy(j.Rest)
		if len(compared) <= maxCompared {
			return nil
		}
		return c.movedTo(compared[:maxCompared], below)
	}
	for some() != nil { // most merges need no transaction for that
		if _, err := c.Update(ctx, true, func(ch *Change) error {
			ch.PutSnapshots = some()
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// knownBy lists the layers whose tiers end on one of some layers, and the snapshots that are compared with one. The
// caller holds mu.
func (c *Catalog) knownBy(layers []*Layer) (tiers, compared ids) {
	for _, l := range layers {
		n := c.index.nodes[l.ID]
		for id := range n.ends.all() {
			tiers.add(id)
		}
		for id := range n.compared.all() {
			compared.add(id)
		}
	}
	return tiers, compared
}

// movedTo copies the records of snapshots, to be compared with another layer. The caller holds mu.
func (c *Catalog) movedTo(snapshots ids, layer string) []*Snapshot {
	var all []*Snapshot
	for _, s := range c.index.records(snapshots) {
		moved := *s
		moved.ParentTop = layer
		all = append(all, &moved)
	}
	return all
}

// detach adds to a change what else knows layers that are merged into next: tiers that end on one of them go, and
// snapshots that are compared with one are compared with what is below from now on. The caller holds writer.
func (c *Catalog) detach(ch *Change, next *Layer, rest []*Layer, dropped *[]string) {
	going := map[string]bool{}
	for _, l := range rest {
		going[l.ID] = true
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	tiers, compared := c.knownBy(rest)
	for _, id := range tiers {
		l := c.index.layer(id)
		if going[id] {
			continue
		}
		ch.delManifests = append(ch.delManifests, l.Tier.Manifest)
		*dropped = append(*dropped, l.Form(true).Key())
		if id == next.ID {
			next.Tier = nil
			continue
		}
		without := *l
		without.Tier = nil
		ch.PutLayers = append(ch.PutLayers, &without)
	}
	ch.PutSnapshots = append(ch.PutSnapshots, c.movedTo(compared, next.Parent)...)
}

// SweepMerges removes merged images that a crash kept from being named.
func (c *Catalog) SweepMerges(ctx context.Context) error {
	var pending map[chunkstore.ID]bool
	err := c.store.View(ctx, func(tx *chunkstore.Tx) (err error) {
		pending, err = pendingMerges(tx)
		return err
	})
	if err != nil || len(pending) == 0 {
		return errclass.Mark(err)
	}
	_, err = c.Update(ctx, true, func(ch *Change) error {
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
			return false, fmt.Errorf("%w: record %s/%s", api.ErrCorrupt, bucketMerges, api.Quoted(key))
		}
		pending[chunkstore.ID(n)] = true
		return true, nil
	})
	return pending, err
}

// ImagesOf lists the images of stored layers, with tiers also those of their tiers.
func ImagesOf(of []*Layer, tiers bool) []chunkstore.ID {
	var ids []chunkstore.ID
	for _, l := range of {
		if l.State == api.Stored {
			ids = append(ids, l.Manifest)
		}
		if tiers && l.Tier != nil {
			ids = append(ids, l.Tier.Manifest)
		}
	}
	return ids
}

// Images are those of all layers and tiers.
func (c *Catalog) Images() []chunkstore.ID { return ImagesOf(c.Layers(), true) }

// NamedImages are the images that records name, as the store has them: the catalog hears of a change a moment after the
// disk. Merged images that no layer names yet are among them.
func (c *Catalog) NamedImages(ctx context.Context) (map[chunkstore.ID]bool, error) {
	var named map[chunkstore.ID]bool
	err := c.store.View(ctx, func(tx *chunkstore.Tx) error {
		var (
			all []*Layer
			err error
		)
		if named, err = pendingMerges(tx); err != nil {
			return err
		}
		if err := scan(tx, bucketLayers, &all); err != nil {
			return err
		}
		for _, m := range ImagesOf(all, true) {
			named[m] = true
		}
		return nil
	})
	return named, errclass.Mark(err)
}
