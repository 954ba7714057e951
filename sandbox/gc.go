package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"snapfs/chunkstore"
)

// gcLock is the lock of the one collection; no workspace can have this name.
const gcLock = "@gc"

// expireEvery is how often snapshots past their time are looked for.
const expireEvery = time.Minute

// GC deletes snapshots past their time and gives the bytes of what nothing needs back to the file system; with Optimize
// it repacks what is stored, too. Layers are merged and mounts go on to what they were merged into first, so that what
// is left afterwards is what somebody has open; the result says who. With MaxSize it goes on with the oldest snapshots
// without a name. Snapshots and mounts go on beside it; a second collection waits for the first.
func (h *Home) GC(ctx context.Context, r GCRequest) (GCResult, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return GCResult{}, err
	}
	defer end()
	unlock, err := h.ops.Lock(ctx, gcLock)
	if err != nil {
		return GCResult{}, err
	}
	defer unlock()
	var result GCResult
	if r.MaxSize < 0 {
		return result, fmt.Errorf("%w: size %d is negative", ErrInvalid, r.MaxSize)
	}
	if r.MaxSize > 0 {
		err = h.trim(ctx, r, &result)
	} else {
		err = h.collect(ctx, r, &result)
	}
	if err == nil && h.limits.Load().Home > 0 {
		_, err = h.measure(ctx) // whoever has made room may use it at once
	}
	if err != nil {
		return result, err
	}
	result.Pinned, result.PinnedBytes, err = h.pinned(ctx)
	return result, err
}

// collect is one collection; it adds to the result. The caller holds the lock of collections.
func (h *Home) collect(ctx context.Context, r GCRequest, result *GCResult) error {
	expired, err := h.expire(ctx)
	result.Expired += expired
	if err != nil {
		return err
	}
	gone, err := h.catalog.SweepLayers(ctx)
	if err != nil {
		return err
	}
	h.cache.Forget(gone)
	if err := h.settle(ctx); err != nil {
		return err
	}
	if err := h.merger.All(ctx, 0); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		h.log.Warn("layers could not be merged; they stay as they are", "error", err)
	}
	h.refreshAll(ctx, true)
	collect := h.store.GC
	if r.Full {
		collect = h.store.Compact
	}
	add := func(stats chunkstore.GCStats) {
		result.Chunks += stats.Chunks
		result.Freed += stats.Bytes
		result.Dropped += stats.Dropped
		result.Left = stats.Left
	}
	stats, err := collect(ctx, stage(r.Progress, "gc", "steps"))
	if err != nil {
		return classify(fmt.Errorf("collecting garbage: %w", err))
	}
	add(stats)
	if r.Optimize {
		stats, err := h.store.Optimize(ctx, stage(r.Progress, "optimize", "chunks"))
		if err != nil {
			return classify(fmt.Errorf("optimizing: %w", err))
		}
		add(stats)
	}
	return nil
}

// settle waits until the directories that nothing needs have given their room back.
func (h *Home) settle(ctx context.Context) error {
	for _, ended := range h.storer.Abandon() {
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return h.uppers.WaitDiscarded(ctx)
}

// stage turns the store's progress, counted in a unit, into that of the API.
func stage(progress func(Progress), name, unit string) func(done, total int64) {
	if progress == nil {
		return nil
	}
	// What there is to do must be looked for first, which takes its time, too.
	progress(Progress{Stage: name, Total: -1, Unit: unit})
	return func(done, total int64) { progress(Progress{Stage: name, Bytes: done, Total: total, Unit: unit}) }
}

// expire deletes the snapshots that are past their time.
func (h *Home) expire(ctx context.Context) (int, error) {
	expired := slices.DeleteFunc(h.catalog.Expired(h.now()), h.isApplying)
	for i, s := range expired {
		if err := h.deleteSnapshot(ctx, s, h.event(EventSnapshotExpired, s.Workspace, "", s.ID, s.Name)); err != nil {
			return i, err
		}
	}
	return len(expired), nil
}

// expireRegularly deletes expired snapshots and events until the home is closed.
func (h *Home) expireRegularly() {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := h.expire(h.ctx); err != nil && !errors.Is(err, context.Canceled) {
			h.log.Warn("deleting expired snapshots", "error", err)
		}
		if err := h.expireEvents(h.ctx); err != nil && !errors.Is(err, context.Canceled) {
			h.log.Warn("deleting expired events", "error", err)
		}
		if err := h.sweepTokens(h.ctx); err != nil && !errors.Is(err, context.Canceled) {
			h.log.Warn("removing expired tokens", "error", err)
		}
		if err := h.trimToLimit(h.ctx); err != nil && !errors.Is(err, context.Canceled) {
			h.log.Warn("keeping the home below its limit", "error", err)
		}
	}
}
