package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"snapfs/internal/lockorder"
	"snapfs/sandbox/internal/catalog"
)

// sizePause is how many times as long as measuring a home took its size is taken for granted.
const sizePause = 20

// trimShare is the share of the snapshots that may go, one of so many parts, that is deleted between one measurement and
// the next: each needs a collection.
const trimShare = 16

// homeSize is what a home takes on its disk, as it was measured last. The zero value is ready.
type homeSize struct {
	mu        lockorder.Mutex[lockorder.HomeSize]
	bytes     int64     // guarded by mu
	until     time.Time // guarded by mu: as long as bytes are taken for granted; the zero time if they are not known
	measuring bool      // guarded by mu: in the background
}

// get gives what was measured last, unless nothing ever was. Whoever is told that it is due must measure, then call done.
func (s *homeSize) get() (bytes int64, known, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known = !s.until.IsZero()
	due = known && !s.measuring && !time.Now().Before(s.until)
	s.measuring = s.measuring || due
	return s.bytes, known, due
}

func (s *homeSize) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measuring = false
}

func (s *homeSize) set(bytes int64, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes, s.until = bytes, time.Now().Add(sizePause*took)
}

// measure gives the bytes that the store, layers that are not stored and the uppers of workspaces have on the disk.
func (h *Home) measure(ctx context.Context) (int64, error) {
	begun := time.Now()
	total, err := h.store.Allocated(ctx)
	if err != nil {
		return 0, classify(err)
	}
	var all []uint64
	for _, w := range h.catalog.Workspaces() {
		all = append(all, w.Upper)
	}
	for _, l := range h.catalog.Layers() {
		if l.State != Stored {
			all = append(all, l.Upper)
		}
	}
	for _, upper := range all {
		n, err := h.uppers.Allocated(ctx, upper)
		if err != nil && ctx.Err() != nil {
			return 0, err
		}
		total += n // one that is removed meanwhile has what was found
	}
	h.size.set(total, time.Since(begun))
	return total, nil
}

// liveSize gives the bytes that the uppers of workspaces have on the disk, which no collection frees.
func (h *Home) liveSize(ctx context.Context) (total int64, err error) {
	for _, w := range h.catalog.Workspaces() {
		n, err := h.uppers.Allocated(ctx, w.Upper)
		if err != nil && ctx.Err() != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// roomInHome refuses to freeze more in a home that has reached its limit. Between two measurements it may grow beyond it.
// They are made in the background, but for the first one and for that of a home that may have reached the limit.
func (h *Home) roomInHome(ctx context.Context) error {
	limit := h.limits.Load().Home
	if limit <= 0 {
		return nil
	}
	size, known, due := h.size.get()
	if due && size < limit {
		h.work.Go(func() {
			defer h.size.done()
			if _, err := h.measure(h.ctx); err != nil && h.ctx.Err() == nil {
				h.log.Warn("measuring the home", "error", err)
			}
		})
	} else if due || !known {
		if due {
			defer h.size.done()
		}
		var err error
		if size, err = h.measure(ctx); err != nil {
			return err
		}
	}
	if size < limit {
		return nil
	}
	return fmt.Errorf("%w: the home takes %s, its limit is %s (max-size): 'snapfs gc --max-size' deletes the oldest "+
		"turns and snapshots without a name, or delete snapshots or destroy workspaces yourself, then run 'snapfs gc'",
		ErrConflict, humanize.IBytes(uint64(size)), humanize.IBytes(uint64(limit)))
}

// trim deletes the oldest snapshots without a name, of all sessions, until the home takes most bytes, and collects what
// they leave. What workspaces stand at stays. The caller holds the lock of collections.
func (h *Home) trim(ctx context.Context, r GCRequest, result *GCResult) error {
	for _, l := range h.catalog.Layers() { // what is stored takes less, and nobody knows yet how much
		if l.State != Sealed || h.importing(l.ID) != nil {
			continue
		}
		if err := h.storer.Wait(ctx, l.ID, nil); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			h.log.Warn("a layer is not stored, and counts as it is", "layer", l.ID, "error", err)
		}
	}
	for {
		if err := h.collect(ctx, r, result); err != nil {
			return err
		}
		size, err := h.measure(ctx)
		if err != nil {
			return err
		}
		result.Size = size
		if result.Over = size > r.MaxSize; !result.Over {
			return nil
		}
		if live, err := h.liveSize(ctx); err != nil || live >= r.MaxSize { // no snapshot is in the way
			return err
		}
		if !r.Full && size-result.Left <= r.MaxSize { // moving live data is enough
			r.Full = true
			continue
		}
		goes := h.expendable()
		if len(goes) == 0 {
			return nil
		}
		for _, s := range goes[:max(1, len(goes)/trimShare)] {
			d, err := h.describeSnapshot(s, maxPage)
			if err == nil {
				e := h.event(EventSnapshotDeleted, s.Workspace, "", s.ID, "to keep the home below its size")
				err = h.deleteSnapshot(ctx, s, e)
			}
			if err != nil && h.catalog.Snapshot(s.ID) != nil {
				return err
			}
			if err == nil {
				result.Deleted = append(result.Deleted, d)
			}
		}
	}
}

// expendable lists the snapshots without a name at which no workspace stands, oldest first; last what would have been
// lost and was kept for a time.
func (h *Home) expendable() []*catalog.Snapshot {
	heads, bases := map[string]bool{}, map[string]bool{}
	for _, w := range h.catalog.Workspaces() {
		heads[w.Head], heads[w.Redo], bases[w.Base] = true, true, true
	}
	all := slices.Collect(h.catalog.ListSnapshots(catalog.Query{}))
	all = slices.DeleteFunc(all, func(s *catalog.Snapshot) bool {
		return s.Name != "" || heads[s.ID] || bases[s.Top] || h.isApplying(s)
	})
	slices.SortStableFunc(all, func(a, b *catalog.Snapshot) int {
		switch {
		case a.Unsaved == b.Unsaved:
			return 0
		case b.Unsaved:
			return -1
		}
		return 1
	})
	return all
}

// trimToLimit keeps the home below the limit that it has, if it has one.
func (h *Home) trimToLimit(ctx context.Context) error {
	limit := h.limits.Load().Home
	if limit <= 0 {
		return nil
	}
	if size, err := h.measure(ctx); err != nil || size < limit {
		return err
	}
	got, err := h.GC(ctx, GCRequest{MaxSize: limit * 15 / 16}) // and some room to go on
	if len(got.Deleted) > 0 {
		h.log.Info("the home was over its limit: the oldest snapshots without a name are deleted", "deleted", len(got.Deleted),
			"bytes", got.Size, "limit", limit)
	}
	if err == nil && got.Size >= limit {
		err = errors.New("the home is over its limit, and nothing is left that may be deleted by itself")
	}
	return err
}
