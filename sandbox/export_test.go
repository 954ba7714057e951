package sandbox

import (
	"context"
	"os"
	"time"

	"snapfs/chunkstore"
	"snapfs/internal/failpoint"
)

// WithPoints gives options whose home tells its durable steps to f.
func WithPoints(o Options, f failpoint.Func) Options {
	o.points = f
	return o
}

// WithClock gives options whose home takes the time from now.
func WithClock(o Options, now func() time.Time) Options {
	o.clock = now
	return o
}

// Settle waits until every sealed layer is stored and every directory that nothing needs is gone.
func (h *Home) Settle(ctx context.Context) error {
	for _, l := range h.catalog.Layers() {
		if err := h.storer.Wait(ctx, l.ID, nil); err != nil {
			return err
		}
	}
	return h.settle(ctx)
}

// Leftovers lists what a settled home should not have: directories of uppers that are no workspace's, and numbers in
// the trash.
func (h *Home) Leftovers(ctx context.Context) ([]string, error) {
	trash, err := h.catalog.Trash(ctx)
	if err != nil {
		return nil, err
	}
	left, err := h.uppers.Strays(nil)
	if err != nil {
		return nil, err
	}
	for n := range trash {
		left = append(left, "in the trash: "+h.uppers.Root(n))
	}
	aside, err := os.ReadDir(h.dir + "/lost+found")
	for _, e := range aside {
		left = append(left, "lost+found/"+e.Name())
	}
	return left, err
}

// Store is the chunk store's account.
func (h *Home) Store(ctx context.Context) (chunkstore.Stats, error) { return h.store.Stats(ctx) }

// ShortHostWait sets for how long a call waits for the home's file system to take changes. No other call is under way.
func (h *Home) ShortHostWait(d time.Duration) { h.host.most = d }

// StoreOf is the store of a home.
func StoreOf(h *Home) *chunkstore.Store { return h.store }

// ExpireEvents removes events that are not to be kept, as the home does every now and then, even if it did just now.
func (h *Home) ExpireEvents(ctx context.Context) error {
	_, err := h.catalog.ExpireEvents(ctx, *h.events.rules.Load())
	return err
}

// StandOn has workspaces stand on small directories, too, until they are imported.
func StandOn(o Options) Options {
	o.few = -1
	return o
}

// Ending is closed when Close begins.
func (h *Home) Ending() <-chan struct{} { return h.ctx.Done() }
