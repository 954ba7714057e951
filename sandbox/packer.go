package sandbox

import (
	"context"
	"fmt"
	"time"

	"snapfs/chunkstore"
	"snapfs/internal/lockorder"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
)

// Waits between attempts to store a layer after an error.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// packer stores sealed layers, one after the other, the oldest first: parents before what lies on them. What it has not
// done when the home is closed is found in the records by the next Open.
type packer struct {
	home *Home
	wake chan struct{} // of capacity 1

	mu       lockorder.Mutex[lockorder.Packer]
	queue    []string             // guarded by mu
	waiters  map[string][]*waiter // guarded by mu: by layer
	troubles map[string]*trouble  // guarded by mu: of layers that could not be stored
	current  *packing             // guarded by mu: nil between layers
}

// packing is the storing of one layer.
type packing struct {
	layer  string
	cancel context.CancelFunc
	ended  chan struct{} // closed
}

// waiter is a call that waits for a layer.
type waiter struct {
	done chan error // of capacity 1

	mu       lockorder.Mutex[lockorder.Waiter]
	progress func(Progress) // guarded by mu; nil once the call has returned
}

func (w *waiter) report(p Progress) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.progress != nil {
		w.progress(p)
	}
}

// leave makes sure that the call's progress function is not called any more.
func (w *waiter) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress = nil
}

func newPacker(h *Home) *packer {
	return &packer{home: h, wake: make(chan struct{}, 1), waiters: map[string][]*waiter{}, troubles: map[string]*trouble{}}
}

// add queues a sealed layer. If it is in use, it must be in the cache.
func (p *packer) add(layer string) {
	p.mu.Lock()
	p.queue = append(p.queue, layer)
	p.mu.Unlock()
	p.kick()
}

func (p *packer) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// wait waits until a layer and everything below it is stored; the error of an attempt ends it.
func (p *packer) wait(ctx context.Context, top string, progress func(Progress)) error {
	records, err := p.home.catalog.Stack(top)
	if err != nil {
		return err
	}
	for i := len(records) - 1; i >= 0; i-- {
		if err := p.waitLayer(ctx, records[i].ID, progress); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) waitLayer(ctx context.Context, layer string, progress func(Progress)) error {
	p.mu.Lock()
	// finish takes the lock after the record has changed, so that a layer seen sealed here has its finish ahead.
	if r := p.home.catalog.Layer(layer); r == nil || r.State == Stored {
		p.mu.Unlock()
		return nil
	}
	w := &waiter{done: make(chan error, 1), progress: progress}
	defer w.leave()
	p.waiters[layer] = append(p.waiters[layer], w)
	delete(p.troubles, layer) // who asks for it has it tried again at once
	p.mu.Unlock()
	p.kick()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run stores until the home is closed.
func (p *packer) run() {
	ctx := p.home.ctx
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-retry.C:
		}
		for ctx.Err() == nil {
			layer, ok := p.next()
			if !ok {
				break
			}
			start := time.Now()
			err := p.begin(ctx, layer)
			if err == nil {
				err = p.pack(ctx, layer)
			}
			if ctx.Err() != nil {
				p.interrupted(layer)
				return
			}
			p.home.metrics.pack(time.Since(start), err)
			if err == nil && p.home.catalog.Layer(layer) == nil {
				err = p.home.catalog.PutAttempts(ctx, layer, catalog.Attempts{}) // deleted meanwhile
			}
			if err != nil {
				p.home.log.Error("a layer could not be stored; it stays sealed", "layer", layer, "error", err)
				p.again(ctx, layer, err)
			}
			p.finish(layer, err)
		}
		if pause, ok := p.pause(); ok {
			retry.Reset(pause)
		}
	}
}

// pack stores a layer, unless nobody needs it any more.
func (p *packer) pack(ctx context.Context, layer string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now := &packing{layer: layer, cancel: cancel, ended: make(chan struct{})}
	p.mu.Lock()
	p.current = now
	p.mu.Unlock()
	tell := p.report(layer)
	err := p.home.pack(ctx, layer, func(files, bytes int64) {
		p.home.yielder.Yield(ctx)
		tell(files, bytes)
	})
	p.mu.Lock()
	p.current = nil
	p.mu.Unlock()
	close(now.ended)
	if p.home.catalog.Layer(layer) == nil {
		return nil // deleted meanwhile
	}
	return err
}

// abandon ends the storing under way if it is of a layer that nobody names any more. The channel is closed when that has ended, or when
// the directory of a layer that has just been stored is given back; nil if there is neither.
func (p *packer) abandon() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return nil
	}
	if !p.home.catalog.Named(p.current.layer) {
		p.current.cancel()
	} else if r := p.home.catalog.Layer(p.current.layer); r == nil || r.State != Stored {
		return nil
	}
	return p.current.ended
}

// finish tells those who wait for a layer.
func (p *packer) finish(layer string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.waiters[layer] {
		w.done <- err
	}
	delete(p.waiters, layer)
	if err == nil {
		delete(p.troubles, layer)
	}
}

// report passes progress on to those who wait for a layer at that time.
func (p *packer) report(layer string) func(files, bytes int64) {
	return func(files, bytes int64) {
		p.mu.Lock()
		waiters := p.waiters[layer]
		p.mu.Unlock()
		for _, w := range waiters {
			w.report(Progress{Stage: "store", Files: files, Bytes: bytes, Total: -1})
		}
	}
}

// pack stores one sealed layer, puts the image in the place of the directory everywhere, and gives the directory to the
// janitor, who gets it when its last user has gone.
func (h *Home) pack(ctx context.Context, layer string, progress func(files, bytes int64)) error {
	if !h.catalog.Pin(layer) {
		return nil // deleted meanwhile
	}
	defer func() {
		gone, err := h.catalog.Unpin(context.WithoutCancel(ctx), layer)
		if err != nil {
			h.log.Warn("a layer that nobody needs is still there", "layer", layer, "error", err)
		}
		h.cache.forget(gone)
		h.merger.kick() // who leaves pinned layers alone
	}()
	r := h.catalog.Layer(layer)
	if r.State == Stored {
		return nil
	}
	s, err := h.cache.open(ctx, layer)
	if err != nil {
		return err
	}
	defer s.release()
	lowers := s.lowers()
	var ch catalog.Change
	m, err := layers.Pack(ctx, h.store, lowers[0], lowers[1:], layers.PackOptions{Progress: progress, Home: h.number},
		func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
			stored := r.Stored(m)
			ch = catalog.Change{PutLayers: []*catalog.Layer{&stored}, PutTrash: []uint64{r.Upper}, Events: h.storedEvents(layer)}
			if err := catalog.DropAttempts(tx, layer); err != nil {
				return err
			}
			return h.catalog.Write(tx, &ch)
		})
	if err != nil {
		return classify(err)
	}
	h.points.At("image committed")
	h.catalog.Committed(&ch)
	return h.replaceSealed(ctx, ch.PutLayers[0], m)
}

// storedEvents tells the workspaces whose snapshots have a layer on top that it is stored.
func (h *Home) storedEvents(layer string) []Event {
	var events []Event
	for _, s := range h.catalog.SnapshotsOn(layer) {
		events = append(events, h.event(EventStored, s.Workspace, "", s.ID, s.Name))
	}
	return events
}

// replaceSealed makes everybody use the image of a layer that has just been stored.
func (h *Home) replaceSealed(ctx context.Context, r *catalog.Layer, m chunkstore.Manifest) error {
	image, err := h.openLayer(ctx, r.Form(false))
	if err != nil {
		return fmt.Errorf("reading layer %s back: %w", r.ID, err)
	}
	now, _ := h.cache.swap(r, image)
	defer h.cache.release(now)
	for _, l := range h.allLive() {
		if err := l.refresh(ctx); err != nil {
			h.log.Warn("a mount keeps using a sealed layer", "workspace", l.workspace, "error", err)
		}
	}
	h.points.At("image in place")
	h.idler.busy()
	h.log.Debug("stored a layer", "layer", r.ID, "size", m.Size, "new", m.New)
	return nil
}
