package snapfs

import (
	"context"
	"fmt"
	"path/filepath"

	"snapfs/bench/internal/subject"
	"snapfs/sandbox"
)

// Created is snapfs without a mount, for directories that are there: each state becomes a workspace of its
// own, which only lives until it is frozen.
func Created() subject.Subject[subject.Store] {
	return subject.Subject[subject.Store]{
		Name: "snapfs create", Programs: []string{"cp", "fusermount3"}, Keeps: subject.KeepsAll, Thorough: true,
		Open: func(ctx context.Context, at subject.Site) (subject.Store, error) {
			dir := filepath.Join(at.Dir, "repo")
			h, err := sandbox.Open(ctx, dir, sandbox.Options{})
			if err != nil {
				return nil, fmt.Errorf("open home: %w", err)
			}
			return &created{store{api: h, home: dir}}, nil
		},
	}
}

type created struct{ store }

func (c *created) Store(ctx context.Context, i int, _, state string) error {
	name := fmt.Sprintf("w%04d", i)
	if _, err := c.api.Create(ctx, sandbox.CreateRequest{Name: name, Source: state}); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	snap, err := c.api.Snapshot(
		ctx, sandbox.SnapshotRequest{Workspace: name, Name: fmt.Sprintf("s%04d", i), WaitStored: true},
	)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	c.ids = append(c.ids, snap.ID)
	if _, err := c.api.Destroy(ctx, sandbox.DestroyRequest{Ref: name, Now: true}); err != nil {
		return fmt.Errorf("destroy workspace: %w", err)
	}
	return nil
}

func (c *created) Settle(ctx context.Context) error { return c.reopen(ctx) }
