package main

import (
	"context"

	"snapfs/sandbox"
)

// rebuildIndex rebuilds the index of a home's store.
func rebuildIndex(ctx context.Context, home string, progress func(sandbox.Progress)) (sandbox.RebuildResult, error) {
	return sandbox.RebuildIndex(ctx, home, sandbox.RebuildRequest{Progress: progress})
}
