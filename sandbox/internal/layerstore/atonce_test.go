package layerstore

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// standstill is a Storer whose layers stand still: those that begin to be stored first, up to a number of them.
type standstill struct {
	most    int
	full    chan struct{} // closed when as many stand still
	release chan struct{} // is closed to let them go on
	run     context.Context

	mu sync.Mutex
	in map[context.Context]bool // guarded by mu: each layer has one of its own
}

// holdStorer runs the fixture's storer.
func (x *fixture) holdStorer(most int) *standstill {
	x.t.Helper()
	h := &standstill{most: most, full: make(chan struct{}), release: make(chan struct{}), in: map[context.Context]bool{}}
	var ended sync.WaitGroup
	s := NewStorer(x.Parts, x.cache, x.merger, h.yield, x)
	x.storer = s
	ctx, cancel := context.WithCancel(context.Background())
	h.run = ctx
	ended.Go(func() { s.Run(ctx) })
	x.t.Cleanup(func() {
		cancel()
		ended.Wait()
	})
	return h
}

func (h *standstill) yield(ctx context.Context) {
	if ctx == h.run {
		return // between layers
	}
	h.mu.Lock()
	if !h.in[ctx] && len(h.in) < h.most {
		if h.in[ctx] = true; len(h.in) == h.most {
			close(h.full)
		}
	}
	stands := h.in[ctx]
	h.mu.Unlock()
	if stands {
		select {
		case <-h.release:
		case <-ctx.Done():
		}
	}
}

// wait waits until as many layers stand still.
func (h *standstill) wait(t *testing.T) {
	t.Helper()
	select {
	case <-h.full:
	case <-time.After(time.Minute):
		t.Fatalf("%d layers are not stored at a time", h.most)
	}
}

// state is that of a layer.
func (x *fixture) state(layer string) api.SnapshotState { return x.Catalog.Layer(layer).State }

// stored waits until a layer is stored.
func (x *fixture) stored(layer string) {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), time.Minute)
	defer cancel()
	if err := x.storer.Wait(ctx, layer, nil); err != nil {
		x.t.Fatal(err)
	}
	if s := x.state(layer); s != api.Stored {
		x.t.Fatalf("layer %s is %s", layer, s)
	}
}

// sealBig seals a layer of which much is to be stored.
func (x *fixture) sealBig(parent, file string) string {
	x.t.Helper()
	storer := x.storer
	x.storer = NewStorer(x.Parts, x.cache, x.merger, func(context.Context) {}, x) // nobody runs it
	layer, _ := x.seal(parent, file)
	x.storer = storer
	at := filepath.Join(x.Uppers.Path(x.Catalog.Layer(layer).Upper), "big")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		x.t.Fatal(err)
	}
	if err := os.Truncate(at, smallBytes+1); err != nil {
		x.t.Fatal(err)
	}
	storer.Add(layer)
	return layer
}

// TestStoredAtOnce: layers of several workspaces are stored at the same time.
func TestStoredAtOnce(t *testing.T) {
	x := newFixture(t, false)
	h := x.holdStorer(storeAtOnce)
	var layers []string
	for _, name := range []string{"a", "b", "c"} {
		layer, _ := x.seal("", name)
		layers = append(layers, layer)
	}
	h.wait(t)
	close(h.release)
	for _, layer := range layers {
		x.stored(layer)
	}
}

// TestSmallBesideBig: big layers do not keep a small one waiting that came later, but what lies below it does.
func TestSmallBesideBig(t *testing.T) {
	x := newFixture(t, false)
	h := x.holdStorer(bigAtOnce)
	first, second := x.sealBig("", "a"), x.sealBig("", "b")
	h.wait(t)
	third := x.sealBig("", "c")
	child, _ := x.seal(first, "d")
	small, _ := x.seal("", "e")
	x.stored(small)
	for _, layer := range []string{first, second, third, child} {
		if s := x.state(layer); s != api.Sealed {
			t.Errorf("layer %s is %s", layer, s)
		}
	}
	close(h.release)
	for _, layer := range []string{child, first, second, third} {
		x.stored(layer)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, err := range x.attempts {
		if err != nil {
			t.Error(err)
		}
	}
}

// importing records a layer that shows a directory, for a session, and a snapshot that names it.
func (x *fixture) importing(session string) string {
	x.t.Helper()
	copies, err := x.Uppers.Create(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	dir := x.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte(session), 0o644); err != nil {
		x.t.Fatal(err)
	}
	l := &catalog.Layer{
		ID: x.Catalog.NewID(), State: api.Importing, Upper: copies, Imported: dir,
		Source: &catalog.Source{Path: dir, Session: session},
	}
	s := &catalog.Snapshot{ID: x.Catalog.NewID(), Workspace: session, Session: session, Top: l.ID}
	if _, err := x.Catalog.Update(x.t.Context(), false, func(ch *catalog.Change) error {
		ch.PutLayers = append(ch.PutLayers, l)
		ch.PutSnapshots = append(ch.PutSnapshots, s)
		return nil
	}); err != nil {
		x.t.Fatal(err)
	}
	x.storer.Add(l.ID)
	return l.ID
}

// TestImportsAtOnce: a session imports one directory at a time, beside one of another session, and imports keep no
// sealed layer waiting that does not lie on them.
func TestImportsAtOnce(t *testing.T) {
	x := newFixture(t, false)
	h := x.holdStorer(importsAtOnce)
	first, second := x.importing("a"), x.importing("a")
	third := x.importing("b")
	h.wait(t)
	if i := x.storer.Importing(first); !i.Running || i.Total != -1 {
		t.Errorf("the first import is %+v", i)
	}
	if x.storer.Importing(second).Running || !x.storer.Importing(third).Running {
		t.Error("the second session waits for the first")
	}
	fourth := x.importing("c")
	above, _ := x.seal(first, "above")
	small, _ := x.seal("", "small")
	x.stored(small)
	for _, layer := range []string{second, fourth} {
		if x.state(layer) != api.Importing {
			t.Errorf("layer %s is %s", layer, x.state(layer))
		}
	}
	if x.state(above) != api.Sealed {
		t.Errorf("what lies on an import is %s", x.state(above))
	}
	close(h.release)
	for _, layer := range []string{first, second, third, fourth, above} {
		x.stored(layer)
	}
}
