package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// gcLock is the lock of the one collection; no workspace can have this name.
const gcLock = "@gc"

// expireEvery is how often snapshots past their time are looked for.
const expireEvery = time.Minute

// GC deletes snapshots past their time and gives the bytes of what nothing needs back to the file system; with Optimize
// it repacks what is stored, too. Layers are merged and mounts go on to what they were merged into first, so that what
// is left afterwards is what somebody has open; the result says who. Snapshots and mounts go on beside it; a second
// collection waits for the first.
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
	if result.Expired, err = h.expire(ctx); err != nil {
		return result, err
	}
	gone, err := h.catalog.SweepLayers(ctx)
	if err != nil {
		return result, err
	}
	h.cache.Forget(gone)
	if err := h.settle(ctx); err != nil {
		return result, err
	}
	if err := h.merger.All(ctx, 0); ctx.Err() != nil {
		return result, ctx.Err()
	} else if err != nil {
		h.log.Warn("layers could not be merged; they stay as they are", "error", err)
	}
	h.refreshAll(ctx, true)
	collect := h.store.GC
	if r.Full {
		collect = h.store.Compact
	}
	stats, err := collect(ctx, stage(r.Progress, "gc", "steps"))
	if err != nil {
		return result, classify(fmt.Errorf("collecting garbage: %w", err))
	}
	result.Chunks, result.Freed, result.Dropped, result.Left = stats.Chunks, stats.Bytes, stats.Dropped, stats.Left
	if r.Optimize {
		stats, err := h.store.Optimize(ctx, stage(r.Progress, "optimize", "chunks"))
		if err != nil {
			return result, classify(fmt.Errorf("optimizing: %w", err))
		}
		result.Chunks += stats.Chunks
		result.Freed += stats.Bytes
		result.Dropped += stats.Dropped
		result.Left = stats.Left
	}
	result.Pinned, result.PinnedBytes, err = h.pinned(ctx)
	return result, err
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
	expired := h.catalog.Expired(h.now())
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
	}
}
