package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"snapfs/chunkstore"
	"snapfs/sandbox/internal/catalog"
)

// RebuildRequest is for RebuildIndex.
type RebuildRequest struct {
	Logger   *slog.Logger // nil = discard
	Progress func(Progress)
}

// RebuildIndex makes the index of the home's store anew from what lies beside it, for a home that Open refuses because
// the index is damaged. Nothing may have the home open (ErrConflict). If it fails, the home is as before.
func RebuildIndex(ctx context.Context, dir string, r RebuildRequest) (res RebuildResult, err error) {
	dir, _, _, err = prepareHome(dir, Options{MustExist: true})
	if err != nil {
		return res, err
	}
	lock, err := lockHome(dir)
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
	if len(got.Problems) == 0 {
		return res, nil
	}
	s, err := chunkstore.Open(store, chunkstore.Options{Logger: r.Logger, MustExist: true})
	if err != nil {
		return res, classify(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	h := &Home{dir: dir, store: s}
	if h.catalog, err = catalog.Open(ctx, s, catalog.Options{}); err != nil {
		return res, err
	}
	c := &checker{h: h}
	c.reportStore(got.Problems)
	res.Problems = c.found
	return res, nil
}
