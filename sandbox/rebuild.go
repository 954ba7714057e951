package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// RebuildRequest is for RebuildIndex.
type RebuildRequest struct {
	Logger   *slog.Logger // nil = discard
	Progress func(Progress)
}

// RebuildIndex makes the index of the home's store anew from what lies beside it, for a home that Open refuses because
// the index is damaged. So are the marker of the home and the file FORMAT of the store, if they are. Nothing may have
// the home open (ErrConflict). If it fails, the home is as before.
func RebuildIndex(ctx context.Context, dir string, r RebuildRequest) (res RebuildResult, err error) {
	real, _, _, err := prepareHome(dir, Options{MustExist: true})
	mend := errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound)
	if mend {
		if fi, serr := os.Stat(filepath.Join(dir, "store")); serr != nil || !fi.IsDir() {
			return res, err
		}
		real, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return res, err
	}
	dir = real
	lock, err := lockHome(dir, nil)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	store := filepath.Join(dir, "store")
	progress := func(name string, done, total int64) {
		if r.Progress == nil {
			return
		}
		p := Progress{Stage: name, Bytes: done, Total: total}
		if name == chunkstore.StageIndex {
			p.Unit = "chunks"
		}
		r.Progress(p)
	}
	got, err := chunkstore.RebuildIndex(ctx, store, chunkstore.RebuildOptions{Logger: r.Logger, Progress: progress})
	if err != nil {
		return res, fmt.Errorf("the store of %s: %w", dir, classify(err))
	}
	res = RebuildResult{
		Images: got.Manifests, Records: got.Records, Chunks: got.Chunks, Unneeded: got.Unneeded,
		Problems: []Problem{}, Old: got.Old,
	}
	if len(got.Problems) == 0 && !mend {
		return res, nil
	}
	s, err := chunkstore.Open(store, chunkstore.Options{Logger: r.Logger, MustExist: true})
	if err != nil {
		return res, classify(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	h := &Home{dir: dir, store: s}
	if mend {
		if err := h.mendMarker(ctx); err != nil {
			return res, err
		}
	}
	if h.catalog, err = catalog.Open(ctx, s, catalog.Options{}); err != nil {
		return res, err
	}
	c := &checker{h: h}
	c.reportStore(ctx, got.Problems)
	res.Problems = c.found
	return res, nil
}

// mendMarker writes the marker anew, from what the store knows of the home.
func (h *Home) mendMarker(ctx context.Context) error {
	id, err := catalog.HomeOf(ctx, h.store)
	if err == nil && !api.IsID(id) {
		err = fmt.Errorf("%w: the store in %s is not of a home", ErrCorrupt, h.dir)
	}
	if err != nil {
		return err
	}
	if err = ownedHere(h.dir); err != nil {
		return err
	}
	err = writeMarker(h.dir, marker{Version: markerVersion, ID: id, State: "ready", Attributes: ownAttributes()})
	h.points.At("marker mended")
	return err
}
