package catalog

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
	"time"

	"snapfs/chunkstore"
	"snapfs/internal/failpoint"
	"snapfs/internal/lockorder"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/errclass"
)

// Catalog holds the records of a home in memory and writes every change through to the store, in one transaction each.
// Records it gives out are immutable.
type Catalog struct {
	store *chunkstore.Store
	ids   *idSource
	opts  Options

	// writer is held by update from its first look at the records until they have changed.
	writer  lockorder.Mutex[lockorder.CatalogWriter]
	settled *sync.Cond // of writer: a staged change was shown or withdrawn
	owed    []*Change  // guarded by writer: withdrawals that the store does not have yet

	mu         lockorder.RWMutex[lockorder.Catalog] // guards what follows; writers of what follows hold writer, too
	workspaces map[string]*Workspace                // by name
	snapshots  map[string]*Snapshot                 // by id
	order      []string                             // ids of snapshots, ascending
	layers     map[string]*Layer                    // by id
	holders    map[string]map[Holder]bool           // by layer: who names it
	pinned     map[string]bool                      // layers whose record must stay because they are being stored
	staged     map[string]*Workspace                // by name: records that are durable and not shown yet
	touched    map[string]bool                      // layers, with all above them, whose merges may have become due; see touchLocked
}

// Holder is what names a layer: a workspace, a snapshot, or the layer above.
type Holder struct {
	kind byte // 'w' workspace, 's' snapshot, 'l' the layer above
	id   string
}

// Options open a catalog.
type Options struct {
	Clock  func() time.Time                // nil = time.Now
	Tell   func([]api.Event)               // is given every event once it is durable; must not wait; nil: nobody is told
	Wait   func(ctx context.Context) error // waits, in reach of ctx, until the disk takes changes; nil: it always does
	Points failpoint.Func                  // is told each durable step; nil but in tests of crashes
}

// Open reads all records of a store.
func Open(ctx context.Context, store *chunkstore.Store, opts Options) (*Catalog, error) {
	c := newCatalog(store, opts)
	var ch Change
	err := store.View(ctx, func(tx *chunkstore.Tx) error {
		ch = Change{}
		return errors.Join(
			scan(tx, bucketWorkspaces, &ch.PutWorkspaces),
			scan(tx, bucketSnapshots, &ch.PutSnapshots),
			scan(tx, bucketLayers, &ch.PutLayers),
			c.seenBefore(tx))
	})
	if err != nil {
		return nil, errclass.Mark(fmt.Errorf("reading the records: %w", err))
	}
	c.apply(&ch)
	for _, l := range ch.PutLayers {
		c.ids.seen(l.ID)
	}
	for _, s := range ch.PutSnapshots {
		c.ids.seen(s.ID)
	}
	return c, nil
}

func newCatalog(store *chunkstore.Store, opts Options) *Catalog {
	c := &Catalog{
		store: store, opts: opts, ids: &idSource{clock: opts.Clock},
		workspaces: map[string]*Workspace{}, snapshots: map[string]*Snapshot{},
		layers: map[string]*Layer{}, holders: map[string]map[Holder]bool{}, pinned: map[string]bool{},
		staged: map[string]*Workspace{}, touched: map[string]bool{},
	}
	c.settled = sync.NewCond(&c.writer)
	if c.opts.Tell == nil {
		c.opts.Tell = func([]api.Event) {}
	}
	return c
}

// Now is the time by the clock of the catalog.
func (c *Catalog) Now() time.Time { return c.ids.now() }

// NewID makes an id that is greater than all before. One that is to be in the order of what becomes durable is made within Update or Stage.
func (c *Catalog) NewID() string { return c.ids.next() }

// seenBefore makes new ids greater than those of events.
func (c *Catalog) seenBefore(tx *chunkstore.Tx) error {
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
			return false, fmt.Errorf("%w: record %s/%s: %w", api.ErrCorrupt, bucket, api.Quoted(key), err)
		}
		*into = append(*into, r)
		return true, nil
	})
}

// Change is what one transaction does to the records.
type Change struct {
	PutWorkspaces []*Workspace
	PutSnapshots  []*Snapshot
	PutLayers     []*Layer
	PutTrash      []uint64
	Events        []api.Event

	DelWorkspaces []*Workspace
	DelSnapshots  []*Snapshot
	delLayers     []*Layer // what update found nobody to name any more
	delTrash      []uint64
	delEvents     []api.Event // of what did not happen

	delMerges    []chunkstore.ID // merged images that are named now, or gone
	delManifests []chunkstore.ID // images that layers named before

	reconsider []string // layers that may have lost their last name earlier
}

// Update runs fn, which looks at the records and fills in a change, and makes the change durable together with
// the removal of the layers that lost their last name by it. It gives back the layers that are gone. The change is not
// interrupted by ctx once fn has returned.
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
	c.collect(&ch)
	if err := c.commit(ctx, sync, &ch); err != nil {
		return nil, err
	}
	c.apply(&ch)
	c.opts.Tell(ch.Events)
	return ch.delLayers, nil
}

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

// collect adds to a change the removal of every layer that nobody names after it. The caller holds c.writer.
func (c *Catalog) collect(ch *Change) {
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
		if old := c.workspaces[w.ID]; old != nil && old.Base != w.Base {
			lose(old.Base, Holder{'w', w.ID})
		}
	}
	for _, s := range ch.PutSnapshots {
		gained[s.Top] = true
	}
	for _, l := range ch.PutLayers {
		gained[l.Parent] = true
		if old := c.layers[l.ID]; old != nil && old.Parent != l.Parent {
			lose(old.Parent, Holder{'l', l.ID})
		}
	}
	for _, w := range ch.DelWorkspaces {
		lose(w.Base, Holder{'w', w.ID})
	}
	for _, s := range ch.DelSnapshots {
		lose(s.Top, Holder{'s', s.ID})
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
			ch.PutTrash = append(ch.PutTrash, l.Upper)
		}
		lose(l.Parent, Holder{'l', id})
	}
}

// Write puts a change into a transaction. Nothing else is committed until that has ended, so the ids that events get here are in
// the order in which they can be read.
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
		put(bucketSnapshots, s.ID, s)
	}
	for _, l := range ch.PutLayers {
		put(bucketLayers, l.ID, l)
	}
	for i := range ch.Events {
		e := &ch.Events[i]
		e.ID = c.ids.next()
		put(bucketEvents, eventKey(*e), e)
	}
	if len(ch.Events)+len(ch.PutSnapshots)+len(ch.PutLayers) > 0 {
		errs = append(errs, tx.Put(bucketMeta, keyLastID, []byte(c.ids.newest())))
	}
	for _, n := range ch.PutTrash {
		errs = append(errs, tx.Put(bucketTrash, strconv.FormatUint(n, 10), nil))
	}
	for _, w := range ch.DelWorkspaces {
		errs = append(errs, tx.Delete(bucketWorkspaces, w.ID))
	}
	for _, s := range ch.DelSnapshots {
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

// Committed repeats in memory a change that an ingest's transaction has made durable. The change only adds: nothing that others
// could have looked at before.
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
	for _, l := range ch.PutLayers {
		if old := c.layers[l.ID]; old != nil && old.Parent != l.Parent {
			c.letGoLocked(old.Parent, Holder{'l', l.ID})
		}
		c.layers[l.ID] = l
		c.holdLocked(l.Parent, Holder{'l', l.ID})
		c.touchLocked(l.ID)
	}
	for _, w := range ch.PutWorkspaces {
		if old := c.workspaces[w.ID]; old != nil {
			c.letGoLocked(old.Base, Holder{'w', w.ID})
		}
		c.workspaces[w.ID] = w
		c.holdLocked(w.Base, Holder{'w', w.ID})
	}
	for _, s := range ch.PutSnapshots {
		c.snapshots[s.ID] = s
		if at, found := slices.BinarySearch(c.order, s.ID); !found {
			c.order = slices.Insert(c.order, at, s.ID)
		}
		c.holdLocked(s.Top, Holder{'s', s.ID})
	}
	for _, w := range ch.DelWorkspaces {
		delete(c.workspaces, w.ID)
		c.letGoLocked(w.Base, Holder{'w', w.ID})
	}
	for _, s := range ch.DelSnapshots {
		delete(c.snapshots, s.ID)
		c.letGoLocked(s.Top, Holder{'s', s.ID})
		if at, found := slices.BinarySearch(c.order, s.ID); found {
			c.order = slices.Delete(c.order, at, at+1)
		}
	}
	for _, l := range ch.delLayers {
		delete(c.layers, l.ID)
		delete(c.holders, l.ID)
		c.letGoLocked(l.Parent, Holder{'l', l.ID})
	}
}

// holdLocked notes that somebody names a layer. mu is held.
func (c *Catalog) holdLocked(layer string, h Holder) {
	if layer == "" {
		return
	}
	if c.holders[layer] == nil {
		c.holders[layer] = map[Holder]bool{}
	}
	c.holders[layer][h] = true
}

// letGoLocked notes that somebody does not name a layer any more. mu is held.
func (c *Catalog) letGoLocked(layer string, h Holder) {
	if c.holders[layer][h] {
		delete(c.holders[layer], h)
		c.touchLocked(layer)
	}
}

// Pin keeps the record of a layer until unpin, whoever drops its last name; false if it is gone already.
func (c *Catalog) Pin(layer string) bool {
	c.writer.Lock()
	defer c.writer.Unlock()
	if c.Layer(layer) == nil {
		return false
	}
	c.pinned[layer] = true
	return true
}

// Pinned tells whether a layer is being stored: until that ends the cache may have the directory, whatever the record says.
func (c *Catalog) Pinned(layer string) bool {
	c.writer.Lock()
	defer c.writer.Unlock()
	return c.pinned[layer]
}

// Unpin ends pin and removes the layer if it lost its last name meanwhile. It gives back the layers that are gone.
func (c *Catalog) Unpin(ctx context.Context, layer string) ([]*Layer, error) {
	return c.Update(ctx, false, func(ch *Change) error {
		delete(c.pinned, layer)
		c.touch(layer)
		ch.reconsider = []string{layer}
		return nil
	})
}

// SweepLayers removes the layers that nobody names and gives them back.
func (c *Catalog) SweepLayers(ctx context.Context) ([]*Layer, error) {
	return c.Update(ctx, false, func(ch *Change) error {
		for id := range c.layers {
			ch.reconsider = append(ch.reconsider, id)
		}
		return nil
	})
}

func (c *Catalog) Workspace(name string) *Workspace {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.workspaces[name]
}

func (c *Catalog) Snapshot(id string) *Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.snapshots[id]
}

func (c *Catalog) Layer(id string) *Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.layers[id]
}

// Named tells whether anybody names a layer.
func (c *Catalog) Named(layer string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.holders[layer]) > 0
}

// Stack lists the layers from top down to the root of the tree.
func (c *Catalog) Stack(top string) ([]*Layer, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var stack []*Layer
	for id := top; id != ""; {
		l := c.layers[id]
		if l == nil || len(stack) > len(c.layers) {
			return nil, fmt.Errorf("%w: layer %s has no record", api.ErrCorrupt, id)
		}
		stack = append(stack, l)
		id = l.Parent
	}
	return stack, nil
}

// Own lists the layers from top down that nothing but who needs: those that go when it does.
func (c *Catalog) Own(top string, who Holder) []*Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var own []*Layer
	for id := top; id != ""; {
		l, holders := c.layers[id], c.holders[id]
		if l == nil || len(holders) != 1 || !holders[who] {
			break
		}
		own = append(own, l)
		id, who = l.Parent, Holder{'l', id}
	}
	return own
}

// Reconsider removes a layer that may have lost its last name, and gives back the layers that are gone.
func (c *Catalog) Reconsider(ctx context.Context, layer string) ([]*Layer, error) {
	if !c.unnamed(layer) {
		return nil, nil
	}
	return c.Update(ctx, false, func(ch *Change) error {
		ch.reconsider = []string{layer}
		return nil
	})
}

// unnamed reports whether a layer has a record that nobody names.
func (c *Catalog) unnamed(layer string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.layers[layer] != nil && len(c.holders[layer]) == 0
}

// SnapshotsOn lists the snapshots whose topmost layer is the one given.
func (c *Catalog) SnapshotsOn(layer string) []*Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var on []*Snapshot
	for h := range c.holders[layer] {
		if s := c.snapshots[h.id]; h.kind == 's' && s != nil {
			on = append(on, s)
		}
	}
	slices.SortFunc(on, func(a, b *Snapshot) int { return cmp.Compare(a.ID, b.ID) })
	return on
}

// Workspaces lists the workspaces in order of names.
func (c *Catalog) Workspaces() []*Workspace {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*Workspace, 0, len(c.workspaces))
	for _, w := range c.workspaces {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *Workspace) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// EachSnapshot calls fn for the snapshots after an id, oldest first, until it returns false. fn must not wait.
func (c *Catalog) EachSnapshot(after string, fn func(*Snapshot) bool) {
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

// Layers lists the layers, oldest first: parents before what lies on them.
func (c *Catalog) Layers() []*Layer {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := make([]*Layer, 0, len(c.layers))
	for _, l := range c.layers {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *Layer) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
