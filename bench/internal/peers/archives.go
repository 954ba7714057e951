package peers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"snapfs/bench/internal/tree"
)

// files is what the archive peers share: one file per state in dir.
type files struct {
	dir    string
	suffix string
}

func (f files) path(i int) string { return filepath.Join(f.dir, fmt.Sprintf("%04d%s", i, f.suffix)) }

func (f files) Settle(context.Context) error { return nil }

func (f files) Size(context.Context) (int64, error) { return tree.Allocated(f.dir) }

func (f files) Close(context.Context) error { return nil }

func (f files) Drop(_ context.Context, from, to int) error {
	for i := from; i < to; i++ {
		if err := os.Remove(f.path(i)); err != nil {
			return fmt.Errorf("delete state: %w", err)
		}
	}
	return nil
}

func openFiles(dir, suffix string) (files, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return files{}, fmt.Errorf("make repository: %w", err)
	}
	return files{dir, suffix}, nil
}
