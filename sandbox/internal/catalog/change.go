package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
)

// Change is what one transaction does to the records.
type Change struct {
	PutWorkspaces []*Workspace
	PutSnapshots  []*Snapshot
	PutLayers     []*Layer
	PutTokens     []*Token
	PutTrash      []uint64    // uppers whose directories are to be removed
	PutAbandoned  []Abandoned // the same, when no overlay of the kernel has them any more
	Events        []api.Event // get their ids when they are written
	Rename        *Rename     // of a workspace: its record is in DelWorkspaces and, by its new name, in PutWorkspaces

	DelWorkspaces []*Workspace
	DelSnapshots  []*Snapshot
	DelTokens     []*Token
	DelTrash      []uint64    // uppers that are gone, or are not to be removed after all
	delLayers     []*Layer    // what Update found that nothing names any more
	delEvents     []api.Event // of what did not happen

	delMerges    []chunkstore.ID // merged images that are named now, or gone
	delManifests []chunkstore.ID // images that layers named before

	PutPositions, DelPositions []*Position

	reconsider []string // layers that may have lost their last name earlier
}

// Update runs fn, which looks at the records and fills in a change, and makes the change durable together with
// the removal of the layers that lost their last name by it. It gives back the layers that are gone. The change is not
// interrupted by ctx once fn has returned. Many layers are removed in further transactions; what a crash or an error
// keeps of them goes with the next change that removes anything, or by SweepLayers.
func (c *Catalog) Update(ctx context.Context, sync bool, fn func(ch *Change) error) ([]*Layer, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	c.writer.Lock()
	defer c.writer.Unlock()
	var ch Change
	if err := fn(&ch); err != nil {
		return nil, err
	}
	sweep := ch.removes() // who makes other changes does not look at what is gone
	if sweep {
		ch.reconsider = append(ch.reconsider, c.unswept...)
	}
	var gone []*Layer
	for first := true; ; first = false {
		more := c.collect(&ch)
		if err := c.commit(ctx, sync, &ch); err != nil {
			if first {
				return nil, err
			}
			return gone, nil // the change is made; a later one removes what is in unswept
		}
		if sweep {
			c.unswept = nil // they are in more, or gone
		}
		c.unswept = append(c.unswept, more...)
		c.apply(&ch)
		c.opts.Tell(ch.Events)
		gone = append(gone, ch.delLayers...)
		if len(more) == 0 {
			return gone, nil
		}
		ch, sweep = Change{reconsider: c.unswept}, true
	}
}

// removes reports whether layers may lose their last name by a change, so that its caller looks at those that are gone.
func (ch *Change) removes() bool {
	return len(ch.DelWorkspaces)+len(ch.DelSnapshots)+len(ch.reconsider) > 0
}

// writes reports whether a change has anything to write.
func (ch *Change) writes() bool {
	return len(ch.PutWorkspaces)+len(ch.PutSnapshots)+len(ch.PutLayers)+len(ch.PutTokens)+len(ch.PutTrash)+len(ch.PutAbandoned)+len(ch.Events)+
		len(ch.DelWorkspaces)+len(ch.DelSnapshots)+len(ch.DelTokens)+len(ch.delLayers)+len(ch.DelTrash)+len(ch.delEvents)+
		len(ch.delMerges)+len(ch.delManifests)+len(ch.PutPositions)+len(ch.DelPositions) > 0
}

// maxGone bounds the layers that one transaction removes: a long stack goes in several.
const maxGone = 256

// begin looks at ctx before a change, and waits, in reach of it, until the disk takes changes.
func (c *Catalog) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.opts.Wait == nil {
		return nil
	}
	return c.opts.Wait(ctx)
}

// collect adds to a change the removal of the layers that nothing names after it, maxGone at most. It returns layers that
// are to be looked at after that. The caller holds c.writer.
func (c *Catalog) collect(ch *Change) []string {
	gained := map[string]bool{} // layers that the change itself names
	lost := map[string]map[Holder]bool{}
	queue := slices.Clone(ch.reconsider)
	lose := func(layer string, h Holder) {
		if layer == "" {
			return
		}
		if lost[layer] == nil {
			lost[layer] = map[Holder]bool{}
		}
		lost[layer][h] = true
		queue = append(queue, layer)
	}
	for _, w := range ch.PutWorkspaces {
		gained[w.Base] = true
		if old := c.index.workspaces[w.ID]; old != nil && old.Base != w.Base {
			lose(old.Base, Holder{'w', w.ID})
		}
	}
	for _, s := range ch.PutSnapshots {
		gained[s.Top] = true
	}
	for _, l := range ch.PutLayers {
		gained[l.Parent] = true
		if old := c.index.layer(l.ID); old != nil && old.Parent != l.Parent {
			lose(old.Parent, Holder{'l', l.ID})
		}
	}
	for _, w := range ch.DelWorkspaces {
		lose(w.Base, Holder{'w', w.ID})
	}
	for _, s := range ch.DelSnapshots {
		lose(s.Top, Holder{'s', s.ID})
	}
	gone := map[string]bool{}
	for len(queue) > 0 && len(gone) < maxGone {
		id := queue[0]
		queue = queue[1:]
		n := c.index.nodes[id]
		if n == nil || n.layer == nil || gained[id] || c.pinned[id] || len(lost[id]) < n.held() || gone[id] {
			continue
		}
		gone[id] = true
		ch.delLayers = append(ch.delLayers, n.layer)
		if n.layer.Upper != 0 {
			ch.PutTrash = append(ch.PutTrash, n.layer.Upper)
		}
		lose(n.layer.Parent, Holder{'l', id})
	}
	return queue
}

// Write puts a change into a transaction. Nothing else is committed until that has ended, so the ids that events get
// here are in the order in which they can be read.
func (c *Catalog) Write(tx *chunkstore.Tx, ch *Change) error {
	var errs []error
	put := func(bucket, key string, record any) {
		value, err := json.Marshal(record)
		if err == nil {
			err = tx.Put(bucket, key, value)
		}
		errs = append(errs, err)
	}
	for _, w := range ch.PutWorkspaces {
		put(bucketWorkspaces, w.ID, w)
	}
	for _, s := range ch.PutSnapshots {
		put(bucketSnapshots, s.ID, s.durable())
	}
	for _, l := range ch.PutLayers {
		put(bucketLayers, l.ID, l)
	}
	for _, t := range ch.PutTokens {
		put(bucketTokens, t.ID, t)
	}
	for _, t := range ch.DelTokens {
		errs = append(errs, tx.Delete(bucketTokens, t.ID))
	}
	if ch.Rename != nil {
		put(bucketRenames, ch.Rename.ID, ch.Rename)
		for _, r := range c.unusedRenames {
			errs = append(errs, tx.Delete(bucketRenames, r.ID))
		}
	}
	for _, p := range ch.PutPositions {
		put(bucketPositions, p.key(), p)
	}
	for _, p := range ch.DelPositions {
		errs = append(errs, tx.Delete(bucketPositions, p.key()))
	}
	for i := range ch.Events {
		e := &ch.Events[i]
		e.ID = c.ids.next()
		put(eventBucket(e.Workspace), eventKey(*e), e)
	}
	if len(ch.Events)+len(ch.PutSnapshots)+len(ch.PutLayers)+len(ch.PutTokens) > 0 {
		errs = append(errs, tx.Put(bucketMeta, keyLastID, []byte(c.ids.newest())))
	}
	for _, n := range ch.PutTrash {
		errs = append(errs, tx.Put(bucketTrash, strconv.FormatUint(n, 10), nil))
	}
	for _, a := range ch.PutAbandoned {
		put(bucketTrash, strconv.FormatUint(a.Upper, 10), a)
	}
	for _, w := range ch.DelWorkspaces {
		errs = append(errs, tx.Delete(bucketWorkspaces, w.ID))
	}
	for _, s := range ch.DelSnapshots {
		errs = append(errs, tx.Delete(bucketSnapshots, s.ID), dropTied(tx, s.ID))
	}
	for _, l := range ch.delLayers {
		errs = append(errs, tx.Delete(bucketLayers, l.ID))
		if l.Manifest != 0 {
			errs = append(errs, tx.DeleteManifest(l.Manifest))
		}
		if l.Tier != nil {
			errs = append(errs, tx.DeleteManifest(l.Tier.Manifest))
		}
	}
	for _, m := range ch.delManifests {
		errs = append(errs, tx.DeleteManifest(m))
	}
	for _, m := range ch.delMerges {
		errs = append(errs, tx.Delete(bucketMerges, mergeKey(m)))
	}
	for _, e := range ch.delEvents {
		errs = append(errs, tx.Delete(eventBucket(e.Workspace), eventKey(e)))
	}
	for _, n := range ch.DelTrash {
		errs = append(errs, tx.Delete(bucketTrash, strconv.FormatUint(n, 10)))
	}
	return errors.Join(errs...)
}

// Committed repeats in memory a change that an ingest's transaction has made durable. The change only adds: nothing
// that others could have looked at before.
func (c *Catalog) Committed(ch *Change) {
	c.writer.Lock()
	defer c.writer.Unlock()
	c.apply(ch)
	c.opts.Tell(ch.Events)
}

// apply repeats in memory what a transaction has done.
func (c *Catalog) apply(ch *Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.index
	for _, l := range ch.PutLayers {
		old := x.layer(l.ID)
		x.putLayer(l)
		if old != nil && old.Parent != l.Parent {
			c.touchLocked(old.Parent)
		}
		c.touchLocked(l.ID)
	}
	for _, w := range ch.PutWorkspaces {
		if old := x.workspaces[w.ID]; old != nil {
			c.touchLocked(old.Base)
		}
		x.putWorkspace(w)
	}
	for _, s := range ch.PutSnapshots {
		x.putSnapshot(s)
	}
	for _, t := range ch.PutTokens {
		x.tokens[t.ID] = t
	}
	for _, t := range ch.DelTokens {
		delete(x.tokens, t.ID)
	}
	if ch.Rename != nil {
		x.renameSnapshots(ch.Rename)
		c.unusedRenames = nil
	}
	for _, w := range ch.DelWorkspaces {
		x.dropWorkspace(w)
		c.touchLocked(w.Base)
	}
	for _, s := range ch.DelSnapshots {
		x.dropSnapshot(s)
		c.touchLocked(s.Top)
	}
	for _, l := range ch.delLayers {
		x.dropLayer(l)
		c.touchLocked(l.Parent)
	}
	c.opts.Changed()
}
