package cli

import (
	"context"
	"io"

	"snapfs/sandbox/api"
)

// rebuildIndex implements 'check --rebuild-index'. It needs no daemon, since none can open such a home.
func (a *app) rebuildIndex(ctx context.Context) error {
	if a.Engine == nil {
		return execEngine()
	}
	if err := a.checkHome(existingHome); err != nil {
		return err
	}
	if err := a.mayStart(); err != nil {
		return err
	}
	meter := a.newMeter()
	got, err := a.Engine.RebuildIndex(ctx, a.home, meter.report())
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
		err = failure(api.ErrCorrupt, "%d problems in %s", len(got.Problems), a.home)
	}
	return err
}
