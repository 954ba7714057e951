package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"snapfs/chunkstore"
	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
)

// recover brings a home that was just opened to a clean state: what a crash left half-done is finished or taken away.
// Nothing uses the home yet.
func (h *Home) recover(ctx context.Context) error {
	if err := h.sweepMerges(ctx); err != nil {
		return err
	}
	gone, err := h.catalog.sweepLayers(ctx)
	if err != nil {
		return err
	}
	h.cache.forget(gone)
	if err := h.remakeLost(); err != nil {
		return err
	}
	trash, err := h.readTrash(ctx)
	if err != nil {
		return err
	}
	for n := range trash {
		h.janitor.add(n)
	}
	if err := h.setAside(trash); err != nil {
		return err
	}
	if err := h.thawFrozen(ctx); err != nil {
		return err
	}
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, w := range h.catalog.allWorkspaces() {
		h.detachStale(w, mounts)
	}
	for _, l := range h.catalog.allLayers() {
		if l.State == Sealed {
			if err := h.packer.resume(ctx, l.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// remakeLost makes the directories again that a loss of power took because a snapshot was not to wait for the disk: its records are
// durable, the directories of its layer and of the upper above may not be. What was in them is lost, the workspace is not.
func (h *Home) remakeLost() error {
	lost := map[uint64]bool{}
	for _, l := range h.catalog.allLayers() {
		if l.NoSync && !h.uppers.exists(l.Upper) {
			lost[l.Upper] = true
		}
	}
	for _, w := range h.catalog.allWorkspaces() {
		if base := h.catalog.layer(w.Base); base != nil && base.NoSync && !h.uppers.exists(w.Upper) {
			lost[w.Upper] = true
		}
	}
	for n := range lost {
		h.log.Warn("what a snapshot without sync left in an upper is lost", "upper", h.uppers.path(n))
		if err := errors.Join(h.uppers.remove(n), h.uppers.make(n)); err != nil {
			return err
		}
	}
	return nil
}

// readTrash lists the uppers that are to be removed.
func (h *Home) readTrash(ctx context.Context) (map[uint64]bool, error) {
	trash := map[uint64]bool{}
	err := h.store.View(ctx, func(tx *chunkstore.Tx) error {
		clear(trash)
		return tx.Scan(bucketTrash, "", func(key string, _ []byte) (bool, error) {
			n, err := strconv.ParseUint(key, 10, 64)
			if err != nil {
				return false, fmt.Errorf("%w: record %s/%s", ErrCorrupt, bucketTrash, api.Quoted(key))
			}
			trash[n] = true
			return true, nil
		})
	})
	return trash, classify(err)
}

// strangers lists the entries of uppers/ that no record names.
func (h *Home) strangers(trash map[uint64]bool) ([]string, error) {
	entries, err := os.ReadDir(h.uppers.dir)
	if err != nil {
		return nil, err
	}
	named := h.namedUppers()
	maps.Copy(named, trash)
	var names []string
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 64); err != nil || !named[n] || e.Name() != strconv.FormatUint(n, 10) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// namedUppers are the uppers that records name.
func (h *Home) namedUppers() map[uint64]bool {
	named := h.catalog.stagedUppers() // first: what is shown meanwhile is among the workspaces then
	maps.Copy(named, h.ready.spares())
	for _, w := range h.catalog.allWorkspaces() {
		named[w.Upper] = true
	}
	for _, l := range h.catalog.allLayers() {
		named[l.Upper] = true
	}
	return named
}

// setAside removes empty uppers that no record names, and moves others to lost+found: they may hold somebody's work.
func (h *Home) setAside(trash map[uint64]bool) error {
	names, err := h.strangers(trash)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(h.uppers.dir, name)
		if h.uppers.empty(name) {
			err = errors.Join(err, hosttree.RemovePath(path))
			h.points.At("stray upper removed")
			continue
		}
		to := filepath.Join(h.dir, "lost+found", name+"-"+time.Now().UTC().Format("20060102T150405.000000000"))
		if e := os.MkdirAll(filepath.Dir(to), 0o700); e != nil {
			return e
		}
		h.log.Warn("an upper without a record is set aside", "from", path, "to", to)
		err = errors.Join(err, os.Rename(path, to))
		h.points.At("stray upper set aside")
	}
	return err
}
