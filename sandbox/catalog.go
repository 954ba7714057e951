package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"snapfs/chunkstore"
	"snapfs/internal/failpoint"
	"snapfs/sandbox/api"
)

// catalog holds the records of a home in memory and writes every change through to the store, in one transaction each.
// Records it gives out are immutable.
type catalog struct {
	store *chunkstore.Store
	ids   *idSource
	tell  func([]Event) // is given every event once it is durable; must not wait

	points failpoint.Func // as in Options
	host   *hostProbe     // of the home; nil: none

	writer  sync.Mutex // held by update from its first look at the records until they have changed
	settled *sync.Cond // of writer: a staged change was shown or withdrawn
	owed    []*change  // guarded by writer: withdrawals that the store does not have yet

	mu         sync.RWMutex                // guards what follows; writers of what follows hold writer, too
	workspaces map[string]*workspaceRecord // by name
	snapshots  map[string]*snapshotRecord  // by id
	order      []string                    // ids of snapshots, ascending
	layers     map[string]*layerRecord     // by id
	holders    map[string]map[holder]bool  // by layer: who names it
	pinned     map[string]bool             // layers whose record must stay because they are being stored
	staged     map[string]*workspaceRecord // by name: records that are durable and not shown yet
	touched    map[string]bool             // layers, with all above them, whose merges may have become due; see touchLocked
}

// holder is who names a layer.
type holder struct {
	kind byte // 'w' workspace, 's' snapshot, 'l' the layer above
	id   string
}

// loadCatalog reads all records.
func loadCatalog(ctx context.Context, store *chunkstore.Store, ids *idSource, tell func([]Event)) (*catalog, error) {
	c := &catalog{
		store: store, ids: ids, tell: tell,
		workspaces: map[string]*workspaceRecord{}, snapshots: map[string]*snapshotRecord{},
		layers: map[string]*layerRecord{}, holders: map[string]map[holder]bool{}, pinned: map[string]bool{},
		staged: map[string]*workspaceRecord{}, touched: map[string]bool{},
	}
	c.settled = sync.NewCond(&c.writer)
	var ch change
	err := store.View(ctx, func(tx *chunkstore.Tx) error {
		ch = change{}
		return errors.Join(
			scan(tx, bucketWorkspaces, &ch.putWorkspaces),
			scan(tx, bucketSnapshots, &ch.putSnapshots),
			scan(tx, bucketLayers, &ch.putLayers),
			c.seenBefore(tx))
	})
	if err != nil {
		return nil, classify(fmt.Errorf("reading the records: %w", err))
	}
	c.apply(&ch)
	for _, l := range ch.putLayers {
		c.ids.seen(l.ID)
	}
	for _, s := range ch.putSnapshots {
		c.ids.seen(s.ID)
	}
	return c, nil
}

// seenBefore makes new ids greater than those of events.
func (c *catalog) seenBefore(tx *chunkstore.Tx) error {
	last, err := tx.Get(bucketMeta, keyLastID)
	if err == nil {
		c.ids.seen(string(last))
		return nil
	}
	if !errors.Is(err, chunkstore.ErrNotFound) {
		return err
	}
	// A home of before the record was kept.
	return tx.Scan(bucketEvents, "", func(key string, _ []byte) (bool, error) {
		_, id, _ := strings.Cut(key, "/")
		c.ids.seen(id)
		return true, nil
	})
}

// scan decodes all records of a bucket.
func scan[R any](tx *chunkstore.Tx, bucket string, into *[]*R) error {
	return tx.Scan(bucket, "", func(key string, value []byte) (bool, error) {
		r := new(R)
		if err := json.Unmarshal(value, r); err != nil {
			return false, fmt.Errorf("%w: record %s/%s: %w", ErrCorrupt, bucket, api.Quoted(key), err)
		}
		*into = append(*into, r)
		return true, nil
	})
}

// change is what one transaction does to the records.
type change struct {
	putWorkspaces []*workspaceRecord
	putSnapshots  []*snapshotRecord
	putLayers     []*layerRecord
	putTrash      []uint64
	events        []Event

	delWorkspaces []*workspaceRecord
	delSnapshots  []*snapshotRecord
	delLayers     []*layerRecord // what update found nobody to name any more
	delTrash      []uint64
	delEvents     []Event // of what did not happen

	delMerges    []chunkstore.ID // merged images that are named now, or gone
	delManifests []chunkstore.ID // images that layers named before

	reconsider []string // layers that may have lost their last name earlier
}

// update runs fn, which looks at the records and fills in a change, and makes the change durable together with
// the removal of the layers that lost their last name by it. It gives back the layers that are gone. The change is not
// interrupted by ctx once fn has returned.
func (c *catalog) update(ctx context.Context, sync bool, fn func(ch *change) error) ([]*layerRecord, error) {
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	c.writer.Lock()
	defer c.writer.Unlock()
	var ch change
	if err := fn(&ch); err != nil {
		return nil, err
	}
	c.collect(&ch)
	if err := c.commit(ctx, sync, &ch); err != nil {
		return nil, err
	}
	c.apply(&ch)
	c.tell(ch.events)
	return ch.delLayers, nil
}

// begin looks at ctx before a change, and waits, in reach of it, until the disk takes changes.
func (c *catalog) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.host.wait(ctx)
}

// collect adds to a change the removal of every layer that nobody names after it. The caller holds c.writer.
func (c *catalog) collect(ch *change) {
	gained := map[string]bool{} // layers that the change itself names
	lost := map[string]map[holder]bool{}
	queue := slices.Clone(ch.reconsider)
	lose := func(layer string, h holder) {
		if layer == "" {
			return
		}
		if lost[layer] == nil {
			lost[layer] = map[holder]bool{}
		}
		lost[layer][h] = true
		queue = append(queue, layer)
	}
	for _, w := range ch.putWorkspaces {
		gained[w.Base] = true
		if old := c.workspaces[w.ID]; old != nil && old.Base != w.Base {
			lose(old.Base, holder{'w', w.ID})
		}
	}
	for _, s := range ch.putSnapshots {
		gained[s.Top] = true
	}
	for _, l := range ch.putLayers {
		gained[l.Parent] = true
		if old := c.layers[l.ID]; old != nil && old.Parent != l.Parent {
			lose(old.Parent, holder{'l', l.ID})
		}
	}
	for _, w := range ch.delWorkspaces {
		lose(w.Base, holder{'w', w.ID})
	}
	for _, s := range ch.delSnapshots {
		lose(s.Top, holder{'s', s.ID})
	}
	for len(queue) > 0 {
		id := queue[0]
		queue = queue[1:]
		l := c.layers[id]
		if l == nil || gained[id] || c.pinned[id] || len(lost[id]) < len(c.holders[id]) || slices.Contains(ch.delLayers, l) {
			continue
		}
		ch.delLayers = append(ch.delLayers, l)
		if l.Upper != 0 {
			ch.putTrash = append(ch.putTrash, l.Upper)
		}
		lose(l.Parent, holder{'l', id})
	}
}

// write puts a change into a transaction. Nothing else is committed until that has ended, so the ids that events get here are in
// the order in which they can be read.
func (c *catalog) write(tx *chunkstore.Tx, ch *change) error {
	var errs []error
	put := func(bucket, key string, record any) {
		value, err := json.Marshal(record)
		if err == nil {
			err = tx.Put(bucket, key, value)
		}
		errs = append(errs, err)
	}
	for _, w := range ch.putWorkspaces {
		put(bucketWorkspaces, w.ID, w)
	}
	for _, s := range ch.putSnapshots {
		put(bucketSnapshots, s.ID, s)
	}
	for _, l := range ch.putLayers {
		put(bucketLayers, l.ID, l)
	}
	for i := range ch.events {
		e := &ch.events[i]
		e.ID = c.ids.next()
		put(bucketEvents, eventKey(*e), e)
	}
	if len(ch.events)+len(ch.putSnapshots)+len(ch.putLayers) > 0 {
		errs = append(errs, tx.Put(bucketMeta, keyLastID, []byte(c.ids.newest())))
	}
	for _, n := range ch.putTrash {
		errs = append(errs, tx.Put(bucketTrash, strconv.FormatUint(n, 10), nil))
	}
	for _, w := range ch.delWorkspaces {
		errs = append(errs, tx.Delete(bucketWorkspaces, w.ID))
	}
	for _, s := range ch.delSnapshots {
		errs = append(errs, tx.Delete(bucketSnapshots, s.ID))
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
		errs = append(errs, tx.Delete(bucketEvents, eventKey(e)))
	}
	for _, n := range ch.delTrash {
		errs = append(errs, tx.Delete(bucketTrash, strconv.FormatUint(n, 10)))
	}
	return errors.Join(errs...)
}

// committed repeats in memory a change that an ingest's transaction has made durable. The change only adds: nothing that others
// could have looked at before.
func (c *catalog) committed(ch *change) {
	c.writer.Lock()
	defer c.writer.Unlock()
	c.apply(ch)
	c.tell(ch.events)
}

// apply repeats in memory what a transaction has done.
func (c *catalog) apply(ch *change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range ch.putLayers {
		if old := c.layers[l.ID]; old != nil && old.Parent != l.Parent {
			c.letGoLocked(old.Parent, holder{'l', l.ID})
		}
		c.layers[l.ID] = l
		c.holdLocked(l.Parent, holder{'l', l.ID})
		c.touchLocked(l.ID)
	}
	for _, w := range ch.putWorkspaces {
		if old := c.workspaces[w.ID]; old != nil {
			c.letGoLocked(old.Base, holder{'w', w.ID})
		}
		c.workspaces[w.ID] = w
		c.holdLocked(w.Base, holder{'w', w.ID})
	}
	for _, s := range ch.putSnapshots {
		c.snapshots[s.ID] = s
		if at, found := slices.BinarySearch(c.order, s.ID); !found {
			c.order = slices.Insert(c.order, at, s.ID)
		}
		c.holdLocked(s.Top, holder{'s', s.ID})
	}
	for _, w := range ch.delWorkspaces {
		delete(c.workspaces, w.ID)
		c.letGoLocked(w.Base, holder{'w', w.ID})
	}
	for _, s := range ch.delSnapshots {
		delete(c.snapshots, s.ID)
		c.letGoLocked(s.Top, holder{'s', s.ID})
		if at, found := slices.BinarySearch(c.order, s.ID); found {
			c.order = slices.Delete(c.order, at, at+1)
		}
	}
	for _, l := range ch.delLayers {
		delete(c.layers, l.ID)
		delete(c.holders, l.ID)
		c.letGoLocked(l.Parent, holder{'l', l.ID})
	}
}

// holdLocked notes that somebody names a layer. mu is held.
func (c *catalog) holdLocked(layer string, h holder) {
	if layer == "" {
		return
	}
	if c.holders[layer] == nil {
		c.holders[layer] = map[holder]bool{}
	}
	c.holders[layer][h] = true
}

// letGoLocked notes that somebody does not name a layer any more. mu is held.
func (c *catalog) letGoLocked(layer string, h holder) {
	if c.holders[layer][h] {
		delete(c.holders[layer], h)
		c.touchLocked(layer)
	}
}

// pin keeps the record of a layer until unpin, whoever drops its last name; false if it is gone already.
func (c *catalog) pin(layer string) bool {
	c.writer.Lock()
	defer c.writer.Unlock()
	if c.layer(layer) == nil {
		return false
	}
	c.pinned[layer] = true
	return true
}

// isPinned tells whether a layer is being stored: until that ends the cache may have the directory, whatever the record says.
func (c *catalog) isPinned(layer string) bool {
	c.writer.Lock()
	defer c.writer.Unlock()
	return c.pinned[layer]
}

// unpin ends pin and removes the layer if it lost its last name meanwhile. It gives back the layers that are gone.
func (c *catalog) unpin(ctx context.Context, layer string) ([]*layerRecord, error) {
	return c.update(ctx, false, func(ch *change) error {
		delete(c.pinned, layer)
		c.touch(layer)
		ch.reconsider = []string{layer}
		return nil
	})
}

// sweepLayers removes the layers that nobody names and gives them back.
func (c *catalog) sweepLayers(ctx context.Context) ([]*layerRecord, error) {
	return c.update(ctx, false, func(ch *change) error {
		for id := range c.layers {
			ch.reconsider = append(ch.reconsider, id)
		}
		return nil
	})
}

func (c *catalog) workspace(name string) *workspaceRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.workspaces[name]
}

func (c *catalog) snapshot(id string) *snapshotRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.snapshots[id]
}

func (c *catalog) layer(id string) *layerRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.layers[id]
}

// named tells whether anybody names a layer.
func (c *catalog) named(layer string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.holders[layer]) > 0
}

// stack lists the layers from top down to the root of the tree.
func (c *catalog) stack(top string) ([]*layerRecord, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var stack []*layerRecord
	for id := top; id != ""; {
		l := c.layers[id]
		if l == nil || len(stack) > len(c.layers) {
			return nil, fmt.Errorf("%w: layer %s has no record", ErrCorrupt, id)
		}
		stack = append(stack, l)
		id = l.Parent
	}
	return stack, nil
}

// own lists the layers from top down that nothing but who needs: those that go when it does.
func (c *catalog) own(top string, who holder) []*layerRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var own []*layerRecord
	for id := top; id != ""; {
		l, holders := c.layers[id], c.holders[id]
		if l == nil || len(holders) != 1 || !holders[who] {
			break
		}
		own = append(own, l)
		id, who = l.Parent, holder{'l', id}
	}
	return own
}

// unnamed tells whether a layer has a record that nobody names.
func (c *catalog) unnamed(layer string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.layers[layer] != nil && len(c.holders[layer]) == 0
}

// snapshotsOn lists the snapshots whose topmost layer is the one given.
func (c *catalog) snapshotsOn(layer string) []*snapshotRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var on []*snapshotRecord
	for h := range c.holders[layer] {
		if s := c.snapshots[h.id]; h.kind == 's' && s != nil {
			on = append(on, s)
		}
	}
	slices.SortFunc(on, func(a, b *snapshotRecord) int { return cmp.Compare(a.ID, b.ID) })
	return on
}

// allWorkspaces lists the workspaces in order of names.
func (c *catalog) allWorkspaces() []*workspaceRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*workspaceRecord, 0, len(c.workspaces))
	for _, w := range c.workspaces {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *workspaceRecord) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// eachSnapshot calls fn for the snapshots after an id, oldest first, until it returns false. fn must not wait.
func (c *catalog) eachSnapshot(after string, fn func(*snapshotRecord) bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	at, found := slices.BinarySearch(c.order, after)
	if found {
		at++
	}
	for _, id := range c.order[at:] {
		if !fn(c.snapshots[id]) {
			return
		}
	}
}

// allLayers lists the layers, oldest first: parents before what lies on them.
func (c *catalog) allLayers() []*layerRecord {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*layerRecord, 0, len(c.layers))
	for _, l := range c.layers {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *layerRecord) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
