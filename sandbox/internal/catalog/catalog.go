package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	// writer is held by Update from its first look at the records until they have changed.
	writer  lockorder.Mutex[lockorder.CatalogWriter]
	settled *sync.Cond // of writer: a staged change was made visible or withdrawn
	pending []*Change  // guarded by writer: withdrawals that the store does not have yet
	unswept []string   // guarded by writer: layers that may have no name, and were not removed yet

	unusedRenames []*Rename // guarded by writer: those of no snapshot, whose records can go

	// mu guards what follows. index, staged and pinned change with writer held, too, so that its holder may read them
	// without mu; but what sessions have in snapshots and bytes follows the clock, and changes under mu alone (Usage).
	mu     lockorder.RWMutex[lockorder.Catalog]
	index  *index                // workspaces, snapshots and layers
	staged map[string]*Workspace // by name: records that are durable and not visible yet
	pinned map[string]bool       // layers whose record must stay because they are being stored
	// touched are layers of which, or above which, merges may have become due; see touchLocked.
	touched map[string]bool
}

// Options open a catalog.
type Options struct {
	Clock   func() time.Time                // nil = time.Now
	Tell    func([]api.Event)               // nil, or is given every event once it is durable; must not wait
	Wait    func(ctx context.Context) error // nil, or waits until the disk takes changes, or for ctx
	Changed func()                          // nil, or is told that records have changed; must not wait
	Points  failpoint.Func                  // is told each durable step; nil but in tests of crashes
}

// Open reads all records of a store; api.ErrCorrupt if one cannot be read.
func Open(ctx context.Context, store *chunkstore.Store, opts Options) (*Catalog, error) {
	c := newCatalog(store, opts)
	var ch Change
	err := store.View(ctx, func(tx *chunkstore.Tx) error {
		ch = Change{}
		err := errors.Join(
			scan(tx, bucketWorkspaces, &ch.PutWorkspaces),
			scan(tx, bucketSnapshots, &ch.PutSnapshots),
			scan(tx, bucketLayers, &ch.PutLayers),
			scan(tx, bucketTokens, &ch.PutTokens),
			c.seenBefore(tx))
		if err == nil {
			c.index.renames, c.unusedRenames, err = readRenames(tx, ch.PutSnapshots)
		}
		return err
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
	for _, r := range c.index.renames {
		c.ids.seen(r.ID)
	}
	for _, t := range ch.PutTokens {
		c.ids.seen(t.ID)
	}
	return c, nil
}

func newCatalog(store *chunkstore.Store, opts Options) *Catalog {
	c := &Catalog{
		store: store, opts: opts, ids: &idSource{clock: opts.Clock},
		index: newIndex(), pinned: map[string]bool{}, staged: map[string]*Workspace{}, touched: map[string]bool{},
	}
	c.settled = sync.NewCond(&c.writer)
	if c.opts.Tell == nil {
		c.opts.Tell = func([]api.Event) {}
	}
	if c.opts.Changed == nil {
		c.opts.Changed = func() {}
	}
	return c
}

// Now is the time by the clock of the catalog.
func (c *Catalog) Now() time.Time { return c.ids.now() }

// NewID makes an id that is greater than all before. One that is to be in the order of what becomes durable is made
// within Update or Stage.
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

// scan appends all records of a bucket to into.
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
