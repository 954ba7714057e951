package layerstore

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/uppers"
)

// fixture is what a home has beneath its mounts.
type fixture struct {
	Parts
	t      *testing.T
	cache  *Cache
	merger *Merger
	storer *Storer
	stop   func() // ends the background work and closes everything; may be called early

	mu       sync.Mutex
	attempts []error // guarded by mu: of storing
}

func (x *fixture) Attempted(_ time.Duration, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.attempts = append(x.attempts, err)
}

func (x *fixture) InPlace(context.Context) {}

func (x *fixture) Import(
	ctx context.Context, r *catalog.Layer, _ *layers.Lower, tell Telling, fn Commit,
) (chunkstore.Manifest, error) {
	opts := layers.StoreOptions{Home: x.Number, Progress: tell.Progress}
	return layers.StoreTree(ctx, x.Store, r.Source.Path, opts, fn)
}

func (x *fixture) Imported(*catalog.Layer, *layers.Lower) []api.Event { return nil }
func (x *fixture) Failed(*catalog.Layer, error)                       {}

// newFixture makes an empty one, whose storer works if storing is true.
func newFixture(t *testing.T, storing bool) *fixture {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "uppers"), 0o700); err != nil {
		t.Fatal(err)
	}
	store, err := chunkstore.Open(filepath.Join(dir, "store"), chunkstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	records, err := catalog.Open(t.Context(), store, catalog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log, yield := slog.New(slog.DiscardHandler), func(context.Context) {}
	set, err := uppers.Open(t.Context(), uppers.Options{
		Dir: filepath.Join(dir, "uppers"), Store: store, Records: records, Yield: yield, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	x := &fixture{t: t, Parts: Parts{Catalog: records, Store: store, Uppers: set, Number: 1, Logger: log}}
	x.Source = func(_ context.Context, r *catalog.Layer) (*layers.Lower, error) {
		return layers.OpenSealed(r.ID, r.Source.Path, 0)
	}
	x.cache = NewCache(x.Parts, 8)
	x.merger = NewMerger(x.Parts, x.cache, func(context.Context) {})
	x.storer = NewStorer(x.Parts, x.cache, x.merger, yield, x)
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { set.Run(ctx) })
	if storing {
		work.Go(func() { x.storer.Run(ctx) })
	}
	x.stop = sync.OnceFunc(func() {
		cancel()
		work.Wait()
		if err := x.cache.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(x.stop)
	return x
}

// seal makes a layer over parent, with one file, and a snapshot that names it.
func (x *fixture) seal(parent, file string) (layer string, snapshot *catalog.Snapshot) {
	x.t.Helper()
	upper, err := x.Uppers.Create(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(x.Uppers.Path(upper), file), []byte(file), 0o644); err != nil {
		x.t.Fatal(err)
	}
	l := &catalog.Layer{ID: x.Catalog.NewID(), Parent: parent, State: api.Sealed, Upper: upper}
	snapshot = &catalog.Snapshot{ID: x.Catalog.NewID(), Workspace: "w", Session: "s", Top: l.ID, ParentTop: parent}
	if _, err := x.Catalog.Update(x.t.Context(), false, func(ch *catalog.Change) error {
		ch.PutLayers = append(ch.PutLayers, l)
		ch.PutSnapshots = append(ch.PutSnapshots, snapshot)
		return nil
	}); err != nil {
		x.t.Fatal(err)
	}
	x.storer.Add(l.ID)
	return l.ID, snapshot
}

// delete deletes a snapshot, and the layers that only it names.
func (x *fixture) delete(s *catalog.Snapshot) {
	x.t.Helper()
	gone, err := x.Catalog.Update(x.t.Context(), false, func(ch *catalog.Change) error {
		ch.DelSnapshots = append(ch.DelSnapshots, s)
		return nil
	})
	if err != nil {
		x.t.Fatal(err)
	}
	x.cache.Forget(gone)
}

// open opens a stack until the test ends or the stack is released.
func (x *fixture) open(top string) *Stack {
	x.t.Helper()
	s, err := x.cache.Open(x.t.Context(), top)
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}
