package layerstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"snapfs/chunkstore"
	"snapfs/internal/lockorder"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/errclass"
)

// Owner is told what a Storer does, in the Storer's goroutines.
type Owner interface {
	// Attempted is told how long an attempt to store a layer took, and its error.
	Attempted(took time.Duration, err error)
	// InPlace is told that the image of a layer is what to use from now on: stacks beneath mounts are to be refreshed.
	InPlace(ctx context.Context)
	// Import stores what a layer shows of a directory of the host, opened as low, and commits it together with what fn
	// writes. It tells expect how many files there may be.
	Import(ctx context.Context, r *catalog.Layer, low *layers.Lower, tell Telling, fn Commit) (chunkstore.Manifest, error)
	// Imported gives the events that tell that a directory is imported, and Failed is told that it is not.
	Imported(r *catalog.Layer, low *layers.Lower) []api.Event
	Failed(r *catalog.Layer, err error)
}

// Telling is told how far an import has come.
type Telling struct {
	Expect   func(files int64)
	Progress func(files, bytes int64)
}

// Commit writes records into the transaction that makes an image durable.
type Commit func(tx *chunkstore.Tx, m chunkstore.Manifest) error

// How many layers are stored at a time, and how many of them may be big: an ingest of much holds some 100 MiB. A small
// layer never waits for a big one, unless that lies below it.
const (
	storeAtOnce   = 3
	bigAtOnce     = 2
	importsAtOnce = 2 // besides these, one of each session
	smallFiles    = 1000
	smallBytes    = 8 << 20
)

// Storer stores layers, sealed directories and such of the host that are being imported, several at a time, the oldest
// first, and parents before what lies on them. What it has not done when its context ends the next process finds in the
// records. Safe for concurrent use; Run is called once.
type Storer struct {
	Parts
	cache  *Cache
	merger *Merger
	yield  func(context.Context)
	owner  Owner
	wake   chan struct{} // of capacity 1

	mu       lockorder.Mutex[lockorder.Storer]
	queue    []string             // guarded by mu
	waiters  map[string][]*waiter // guarded by mu: by layer
	troubles map[string]*trouble  // guarded by mu: of layers that could not be stored
	now      map[string]*storing  // guarded by mu: by layer
	big      map[string]bool      // guarded by mu: layers in queue that were found to be big
}

// storing is the storing of one layer.
type storing struct {
	layer  string
	cancel context.CancelFunc // guarded by Storer.mu; nil before it begins
	big    bool               // guarded by Storer.mu
	ended  chan struct{}      // closed
	source *catalog.Source    // of an import, else nil; immutable

	files, bytes, expected atomic.Int64 // of an import, so far; expected is -1 if it is not known
}

// waiter is a call that waits for a layer. The call reports its progress itself: however slow that is, storing goes on.
type waiter struct {
	done chan error        // of capacity 1
	news chan api.Progress // of capacity 1: what the call has not reported yet
}

// tell puts news in the place of older ones. It never waits.
func (w *waiter) tell(p api.Progress) {
	select {
	case <-w.news:
	default:
	}
	select {
	case w.news <- p:
	default: // somebody else has told newer ones
	}
}

// wait reports news until the layer is stored, or ctx ends.
func (w *waiter) wait(ctx context.Context, progress func(api.Progress)) error {
	for {
		select {
		case p := <-w.news:
			progress(p)
		case err := <-w.done:
			select {
			case p := <-w.news:
				progress(p)
			default:
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// NewStorer makes a Storer, which works in Run. It calls yield often while it does, which may wait, and wakes the
// merger for what has become possible.
func NewStorer(p Parts, c *Cache, m *Merger, yield func(context.Context), o Owner) *Storer {
	return &Storer{
		Parts: p, cache: c, merger: m, yield: yield, owner: o, wake: make(chan struct{}, 1),
		waiters: map[string][]*waiter{}, troubles: map[string]*trouble{}, now: map[string]*storing{},
		big: map[string]bool{},
	}
}

// Add queues a layer that is not stored. If it is in use, it must be in the cache.
func (s *Storer) Add(layer string) {
	s.mu.Lock()
	s.queue = append(s.queue, layer)
	s.mu.Unlock()
	s.kick()
}

func (s *Storer) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Wait waits until a layer and everything below it is stored; the error of an attempt ends it. One that was parked is
// tried once more. progress, which may be nil, is called in the caller's goroutine.
func (s *Storer) Wait(ctx context.Context, top string, progress func(api.Progress)) error {
	if progress == nil {
		progress = func(api.Progress) {}
	}
	sealed, err := s.Catalog.SealedOf(top)
	if err != nil {
		return err
	}
	for _, r := range slices.Backward(sealed) {
		if err := s.waitLayer(ctx, r.ID, progress); err != nil {
			return err
		}
	}
	return nil
}

func (s *Storer) waitLayer(ctx context.Context, layer string, progress func(api.Progress)) error {
	s.mu.Lock()
	// finish takes the lock after the record has changed, so that a layer seen sealed here has its finish ahead.
	if r := s.Catalog.Layer(layer); r == nil || r.State == api.Stored {
		s.mu.Unlock()
		return nil
	}
	w := &waiter{done: make(chan error, 1), news: make(chan api.Progress, 1)}
	s.waiters[layer] = append(s.waiters[layer], w)
	s.retryLocked(layer)
	s.mu.Unlock()
	s.kick()
	return w.wait(ctx, progress)
}

// Run stores until ctx ends.
func (s *Storer) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for range storeAtOnce + importsAtOnce {
		workers.Go(func() { s.work(ctx) })
	}
	workers.Wait()
}

// work stores one layer after the other until ctx ends.
func (s *Storer) work(ctx context.Context) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-retry.C:
		}
		for ctx.Err() == nil {
			now := s.next()
			if now == nil {
				break
			}
			s.kick() // there may be more for others
			if s.room(ctx, now) {
				s.attempt(ctx, now)
			}
		}
		if pause, ok := s.pause(); ok {
			retry.Reset(pause)
		}
	}
}

// attempt stores a layer, and says what became of it.
func (s *Storer) attempt(ctx context.Context, now *storing) {
	s.yield(ctx)
	layer, start := now.layer, time.Now()
	err := s.begin(ctx, layer)
	if err == nil {
		err = s.try(ctx, now)
	}
	if ctx.Err() != nil {
		s.interrupted(layer)
		return
	}
	s.owner.Attempted(time.Since(start), err)
	if err == nil && s.Catalog.Layer(layer) == nil {
		err = s.Catalog.PutAttempts(ctx, layer, catalog.Attempts{}) // deleted meanwhile
	}
	if err != nil {
		again := s.failed(ctx, layer, err)
		switch r := s.Catalog.Layer(layer); {
		case again: // it was told
		case r != nil && r.State == api.Importing:
			s.Logger.Error("a directory could not be imported", "directory", r.Source.Path, "layer", layer, "error", err)
			s.owner.Failed(r, err)
		default:
			s.Logger.Error("a layer could not be stored; it stays sealed", "layer", layer, "error", err)
		}
	}
	s.finish(layer, err)
}

// try stores a layer, unless nothing needs it any more.
func (s *Storer) try(ctx context.Context, now *storing) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	layer := now.layer
	s.mu.Lock()
	now.cancel = cancel
	s.mu.Unlock()
	report := s.reporter(now)
	err := s.store(ctx, now, func(files, bytes int64) {
		s.yield(ctx)
		report(files, bytes)
	})
	close(now.ended)
	if s.Catalog.Layer(layer) == nil {
		return nil // deleted meanwhile
	}
	return err
}

// Abandon ends the storing of layers that nothing names any more. Each channel is closed when one of them has ended, or
// when the directory of a layer that has just been stored is given back.
func (s *Storer) Abandon() []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []<-chan struct{}
	for _, now := range s.now {
		if now.cancel == nil {
			continue
		}
		if !s.Catalog.Named(now.layer) {
			now.cancel()
		} else if r := s.Catalog.Layer(now.layer); r == nil || r.State != api.Stored {
			continue
		}
		ended = append(ended, now.ended)
	}
	return ended
}

// finish wakes the calls that wait for a layer.
func (s *Storer) finish(layer string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.waiters[layer] {
		w.done <- err
	}
	delete(s.waiters, layer)
	delete(s.now, layer)
	s.kick() // of what lies on it
	if err == nil {
		delete(s.troubles, layer)
	}
}

// reporter passes progress on to the calls that wait for a layer at that time.
func (s *Storer) reporter(now *storing) func(files, bytes int64) {
	return func(files, bytes int64) {
		now.files.Store(files)
		now.bytes.Store(bytes)
		p := api.Progress{Stage: "store", Files: files, Bytes: bytes, Total: -1}
		if now.source != nil {
			p = now.imported()
		}
		s.mu.Lock()
		waiters := s.waiters[now.layer]
		s.mu.Unlock()
		for _, w := range waiters {
			w.tell(p)
		}
	}
}

// store stores one layer, puts the image in the place of the directory everywhere, and has the directory removed when
// its last user has gone.
func (s *Storer) store(ctx context.Context, now *storing, progress func(files, bytes int64)) error {
	layer := now.layer
	if !s.Catalog.Pin(layer) {
		return nil // deleted meanwhile
	}
	defer func() {
		gone, err := s.Catalog.Unpin(context.WithoutCancel(ctx), layer)
		if err != nil {
			s.Logger.Warn("a layer that nobody needs is still there", "layer", layer, "error", err)
		}
		s.cache.Forget(gone)
		s.merger.Kick() // it leaves pinned layers alone
	}()
	r := s.Catalog.Layer(layer)
	if r.State == api.Stored {
		return nil
	}
	stack, err := s.cache.Open(ctx, layer)
	if err != nil {
		return err
	}
	defer stack.Release()
	lowers := stack.Lowers()
	var ch catalog.Change
	commit := func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		stored := r.Stored(m)
		ch = catalog.Change{
			PutLayers: []*catalog.Layer{&stored}, PutTrash: []uint64{r.Upper}, Events: s.events(layer),
		}
		if r.Source != nil {
			ch.Events = append(ch.Events, s.owner.Imported(r, lowers[0])...)
		}
		if err := catalog.DropAttempts(tx, layer); err != nil {
			return err
		}
		return s.Catalog.Write(tx, &ch)
	}
	var m chunkstore.Manifest
	if r.Source != nil {
		tell := Telling{Expect: now.expected.Store, Progress: progress}
		m, err = s.owner.Import(ctx, r, lowers[0], tell, commit)
	} else {
		opts := layers.StoreOptions{Progress: progress, Home: s.Number}
		m, err = layers.Store(ctx, s.Store, lowers[0], lowers[1:], opts, commit)
	}
	if err != nil {
		return errclass.Mark(err)
	}
	s.Points.At("image committed")
	s.Catalog.Committed(&ch)
	return s.replace(ctx, ch.PutLayers[0], m)
}

// events tell the workspaces whose snapshots have a layer on top that it is stored.
func (s *Storer) events(layer string) []api.Event {
	var events []api.Event
	for _, of := range s.Catalog.SnapshotsOn(layer) {
		events = append(events, api.Event{
			Workspace: of.Workspace, Kind: api.EventStored, At: s.Catalog.Now().UTC(), Snapshot: of.ID,
			Level: "info", Detail: of.Name,
		})
	}
	return events
}

// replace makes all users of the directory use the image of a layer that has just been stored.
func (s *Storer) replace(ctx context.Context, r *catalog.Layer, m chunkstore.Manifest) error {
	image, err := s.cache.openForm(ctx, r.Form(false))
	if err != nil {
		return fmt.Errorf("reading layer %s back: %w", r.ID, err)
	}
	now := s.cache.swap(r, image)
	defer s.cache.Release(now)
	s.owner.InPlace(ctx)
	s.Points.At("image in place")
	s.Logger.Debug("stored a layer", "layer", r.ID, "size", m.Size, "new", m.New)
	return nil
}
