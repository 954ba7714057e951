package layerstore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"snapfs/sandbox/api"
)

// TestSlowProgress: a call whose progress goes to a client that does not read holds up neither the storing of its layer
// nor other calls that wait for that.
func TestSlowProgress(t *testing.T) {
	x := newFixture(t, false)
	layer, _ := x.seal("", "file")
	calls, end := make(chan error, 2), make(chan struct{})
	reported := 0
	wait := func(progress func(api.Progress)) {
		go func() { calls <- x.storer.Wait(t.Context(), layer, progress) }()
	}
	wait(func(api.Progress) {
		reported++
		<-end
	})
	wait(nil)
	registered := func() int {
		x.storer.mu.Lock()
		defer x.storer.mu.Unlock()
		return len(x.storer.waiters[layer])
	}
	for registered() < 2 {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { x.storer.Run(ctx) })
	if err := <-calls; err != nil { // the other call
		t.Error(err)
	}
	if r := x.Catalog.Layer(layer); r.State != api.Stored {
		t.Errorf("the layer is %s", r.State)
	}
	close(end)
	if err := <-calls; err != nil {
		t.Error(err)
	}
	if reported == 0 {
		t.Error("no progress was reported")
	}
	cancel()
	work.Wait()
}

// TestProblemStays: why a layer was not stored is known until another attempt has ended, whoever asks for that.
func TestProblemStays(t *testing.T) {
	x := newFixture(t, false)
	layer, _ := x.seal("", "file")
	fails := errors.New("it cannot be stored")
	known := func() string { return x.storer.Importing(layer).Problem }
	for _, ask := range []func(){
		func() { x.storer.Retry(layer) },
		func() {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := x.storer.Wait(ctx, layer, nil); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		},
	} {
		if x.storer.failed(t.Context(), layer, fails) {
			t.Error("it is not told again, though somebody has asked")
		}
		ask()
		if got := known(); got != fails.Error() {
			t.Errorf("the problem is %q", got)
		}
	}
	x.storer.failed(t.Context(), layer, fails)
	if !x.storer.failed(t.Context(), layer, fails) {
		t.Error("it is told twice, though nobody has asked")
	}
}
