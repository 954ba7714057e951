package sandbox

import (
	"context"
	"time"

	"snapfs/chunkstore"
	"snapfs/internal/lockorder"
)

const (
	// idleChunks is from how many new chunks on an idle home is packed anew: fewer would not fill blocks.
	idleChunks = 512
	// idleGarbage is the share of the payload, one of so many parts, from which on an idle home is collected.
	idleGarbage = 20
	// idleLook is how often the counters of mounts are looked at while an idle home works.
	idleLook = time.Second
)

// idler tidies a home without calls and requests for a time: layers are merged, garbage is collected, and what came
// since the last time is packed anew, on one processor. Any call and any request of a mount ends the work at once; what
// is done stays done, and the rest is taken up when the home is idle again.
//
// Its thread keeps its priority: at a low one it would hold up the pauses of the Go runtime, and all calls with them.
type idler struct {
	home  *Home
	after time.Duration

	mu       lockorder.Mutex[lockorder.Idler]
	calls    int                // guarded by mu: under way
	last     time.Time          // guarded by mu: of the last call or request, or end of storing a layer
	requests uint64             // guarded by mu: of all mounts, when they were last looked at
	cancel   context.CancelFunc // guarded by mu: ends the work under way; nil if there is none
	stage    string             // guarded by mu: what the work is doing
	tidy     bool               // guarded by mu: all was done since the last call or request
}

func newIdler(h *Home, after time.Duration) *idler {
	return &idler{home: h, after: after, last: time.Now()}
}

// enter tells of a call, leave of its end, busy of other work before which the home is not idle.
func (i *idler) enter() { i.note(1) }
func (i *idler) leave() { i.note(-1) }
func (i *idler) busy()  { i.note(0) }

func (i *idler) note(calls int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls += calls
	i.last, i.tidy = time.Now(), false
	if i.cancel != nil {
		i.cancel()
	}
}

// look notices requests of mounts. It gives how long the home has been idle with work left to do.
func (i *idler) look() time.Duration {
	total := uint64(0)
	for _, l := range i.home.allLive() {
		for _, n := range l.mount.Requests() {
			total += n
		}
	}
	i.mu.Lock()
	changed := total != i.requests
	i.requests = total
	idle := time.Since(i.last)
	if i.tidy || i.calls > 0 {
		idle = 0
	}
	i.mu.Unlock()
	if changed {
		i.busy()
		return 0
	}
	return idle
}

// working tells what is being done; "" for nothing.
func (i *idler) working() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stage
}

// run waits for the home to be idle until it is closed.
func (i *idler) run() {
	if i.after <= 0 {
		return
	}
	ctx := i.home.ctx
	tick := time.NewTicker(max(min(i.after/4, time.Minute), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if i.look() >= i.after {
			i.work(ctx)
		}
	}
}

// work tidies until it is done or the home is busy.
func (i *idler) work(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	defer cancel()
	i.mu.Lock()
	if i.calls > 0 {
		i.mu.Unlock()
		return // it has just been asked
	}
	i.cancel = cancel
	i.mu.Unlock()
	go func() { // ends with ctx, awaited below
		defer close(watched)
		i.watch(ctx)
	}()
	for _, step := range []struct {
		stage string
		run   func(context.Context) error
	}{{"merging layers", i.merge}, {"collecting", i.collect}, {"optimizing", i.optimize}} {
		i.begin(step.stage)
		if err := step.run(ctx); err != nil && ctx.Err() == nil {
			i.home.log.Warn("tidying the idle home", "stage", step.stage, "error", err)
		}
		if ctx.Err() != nil {
			i.home.log.Debug("tidying the idle home was interrupted", "stage", step.stage)
			break
		}
	}
	done := ctx.Err() == nil
	cancel()
	<-watched
	i.mu.Lock()
	i.cancel, i.stage, i.tidy = nil, "", done
	i.mu.Unlock()
}

func (i *idler) begin(stage string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stage = stage
}

// watch ends the work when a mount is used.
func (i *idler) watch(ctx context.Context) {
	tick := time.NewTicker(idleLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			i.look()
		}
	}
}

func (i *idler) merge(ctx context.Context) error {
	err := i.home.merger.All(ctx, 0)
	i.home.refreshAll(ctx, true)
	return err
}

func (i *idler) collect(ctx context.Context) error {
	st, err := i.home.store.Stats(ctx)
	if err != nil || st.Garbage == 0 || st.Garbage*idleGarbage < st.Payload {
		return err
	}
	return i.stored(ctx, "collected", i.home.store.GC)
}

func (i *idler) optimize(ctx context.Context) error {
	if i.home.store.Unoptimized() < idleChunks {
		return nil
	}
	return i.stored(ctx, "optimized", i.home.store.Optimize)
}

// stored runs GC or Optimize of the store, unless an explicit collection runs.
func (i *idler) stored(ctx context.Context, what string,
	run func(context.Context, func(done, total int64)) (chunkstore.GCStats, error),
) error {
	unlock, ok := i.home.ops.TryLock(gcLock)
	if !ok {
		return nil
	}
	defer unlock()
	start := time.Now()
	stats, err := run(ctx, nil)
	if err == nil {
		took := time.Since(start).Round(time.Millisecond)
		i.home.log.Info("the idle home was "+what, "took", took, "freed", stats.Bytes)
	}
	return err
}
