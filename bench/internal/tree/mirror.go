package tree

import (
	"context"

	"snapfs/bench/internal/program"
)

// Mirror makes the directory to what the directory from is, by rsync with more arguments. Files that were changed
// within a second differ by their nanoseconds, which rsync does not look at by itself.
func Mirror(ctx context.Context, from, to string, more ...string) error {
	args := append([]string{"-aHXD", "--delete", "--modify-window=-1"}, more...)
	return program.Run(ctx, "rsync", append(args, from+"/", to+"/")...)
}
