package peers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"snapfs/bench/internal/caches"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
)

// native is a copy of the tree on the disk itself.
type native struct{ path string }

// Native is the host's file system without anything above it.
func Native() subject.Subject[subject.Mount] {
	return subject.Subject[subject.Mount]{Name: "ext4", Programs: []string{"cp"}, Open: openNative}
}

func openNative(ctx context.Context, at subject.Site) (subject.Mount, error) {
	n := &native{filepath.Join(at.Dir, "copy")}
	if err := os.Mkdir(n.path, 0o755); err != nil {
		return nil, fmt.Errorf("copy the tree: %w", err)
	}
	for _, p := range at.Parts {
		if err := program.Run(ctx, "cp", "-a", filepath.Join(at.Tree, p), n.path); err != nil {
			return nil, err
		}
	}
	return n, nil
}

func (n *native) Dir() string                                         { return n.path }
func (n *native) Cold(context.Context) error                          { return caches.Empty() }
func (n *native) Requests(context.Context) (map[string]uint64, error) { return nil, nil }
func (n *native) Server(context.Context) (int, error)                 { return 0, nil }
func (n *native) Binaries() []string                                  { return nil }
func (n *native) Close(context.Context) error                         { return nil }
