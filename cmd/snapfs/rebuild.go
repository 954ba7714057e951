package main

import (
	"context"
	"io"

	"snapfs/sandbox"
)

// rebuildIndex does 'check --rebuild-index', in this process: no daemon can open such a home.
func (a *app) rebuildIndex(ctx context.Context) error {
	if err := a.lookAtHome(existingHome); err != nil {
		return err
	}
	if err := a.mayStart(); err != nil {
		return err
	}
	meter := a.newMeter()
	req := sandbox.RebuildRequest{Progress: meter.report()}
	got, err := sandbox.RebuildIndex(ctx, a.home, req)
	meter.done()
	if err != nil {
		return err
	}
	a.note("the index has %d images, %d records and %d chunks; %d chunks that nothing needs were left out",
		got.Images, got.Records, got.Chunks, got.Unneeded)
	if got.Old != "" {
		a.note("the old index is kept in %s", got.Old)
	}
	err = a.result(got, func(w io.Writer) error { return a.printProblems(w, got.Problems) })
	if err == nil && len(got.Problems) > 0 {
		err = failure(sandbox.ErrCorrupt, "%d problems in %s", len(got.Problems), a.home)
	}
	return err
}
