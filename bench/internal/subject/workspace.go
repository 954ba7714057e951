package subject

import (
	"context"
	"time"
)

// Workspace is a workspace with snapshots of it.
type Workspace interface {
	System
	// Dir is where programs see the workspace; it may change with a rollback.
	Dir() string
	// Snapshot freezes the workspace; with sync, what it froze survives a loss of power.
	Snapshot(ctx context.Context, sync bool) (id string, err error)
	// Restore makes another workspace of a snapshot and gives its directory.
	Restore(ctx context.Context, id string) (dir string, err error)
	// Unrestore takes that away again; it is not measured.
	Unrestore(ctx context.Context, dir string) error
	Rollback(ctx context.Context, id string) error
	// Diff compares a snapshot with the workspace; ErrNotOffered where the system has no such operation.
	Diff(ctx context.Context, id string) error
	Delete(ctx context.Context, id string) error
	// Held is for how long all snapshots and rollbacks so far have held back writers; 0 where nothing counts it.
	Held(ctx context.Context) (time.Duration, error)
}
