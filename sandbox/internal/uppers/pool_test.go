package uppers

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"snapfs/chunkstore"
)

// records are those of a home without workspaces, but for the uppers of named, and without images.
type records struct {
	mu    sync.Mutex
	named map[uint64]bool // guarded by mu
	trash map[uint64]bool // guarded by mu
}

func (r *records) Uppers() map[uint64]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.named)
}

func (r *records) Trash(context.Context) (map[uint64]bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.trash), nil
}

func (r *records) DropTrash(_ context.Context, n uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.trash, n)
	return nil
}

func (r *records) StagedUppers() map[uint64]bool { return map[uint64]bool{} }
func (r *records) Images() []chunkstore.ID       { return nil }

// openSet opens the uppers in dir over a store beside them, both made if they are not there. stop, which may be called
// early, ends the background work and closes the store.
func openSet(t *testing.T, dir string) (s *Set, r *records, stop func()) {
	t.Helper()
	for _, sub := range []string{"store", "uppers"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	store, err := chunkstore.Open(filepath.Join(dir, "store"), chunkstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r = &records{named: map[uint64]bool{}, trash: map[uint64]bool{}}
	s, err = Open(t.Context(), Options{
		Dir: filepath.Join(dir, "uppers"), Store: store, Records: r,
		Yield: func(context.Context) {}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { s.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		run.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return s, r, stop
}

// waitReady waits until as many uppers are ready as are kept.
func waitReady(t *testing.T, s *Set) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.pool.mu.Lock()
		n := len(s.pool.ready)
		s.pool.mu.Unlock()
		if n == readyMost {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d uppers are ready", n)
		}
	}
}

// TestReadyUppers takes uppers that were made in advance, which are no strays while they wait, and go with the Set.
func TestReadyUppers(t *testing.T) {
	s, _, stop := openSet(t, t.TempDir())
	if _, ok := s.TakeReady(); ok {
		t.Error("an upper was ready before any was asked for")
	}
	seen := map[uint64]bool{}
	for range 2 * readyMost {
		waitReady(t, s)
		if left, err := s.Strays(nil); err != nil || len(left) != len(seen) {
			t.Errorf("strays %v, %v; %d were taken", left, err, len(seen))
		}
		n, ok := s.TakeReady()
		if !ok || seen[n] || !s.Exists(n) {
			t.Errorf("upper %d: %v, taken before %v", n, ok, seen[n])
		}
		seen[n] = true
	}
	waitReady(t, s)
	stop()
	if left, err := os.ReadDir(s.Dir()); err != nil || len(left) != len(seen) {
		t.Errorf("left %v, %v; %d were taken", left, err, len(seen))
	}
}

// TestSurveyWhileStopping looks for spaces in use, which asks for the ready uppers, while those are removed.
func TestSurveyWhileStopping(t *testing.T) {
	s, _, stop := openSet(t, t.TempDir())
	s.TakeReady()
	waitReady(t, s)
	ended := make(chan struct{})
	go func() { // ends with the loop, awaited below
		defer close(ended)
		for range 100 {
			s.mu.Lock()
			s.survey = true
			s.mu.Unlock()
			n, err := s.number(context.Background())
			if err != nil {
				return // the store is closed
			}
			s.made(n)
		}
	}()
	stop()
	<-ended
}
