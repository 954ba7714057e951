package httpapi

import (
	"context"
	"iter"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// Service is what the adapter needs of the service; *sandbox.Home has it.
type Service interface {
	api.WorkFiles
	api.Labelling

	Create(ctx context.Context, r api.CreateRequest) (api.Workspace, error)
	Mount(ctx context.Context, r api.MountRequest) (api.Workspace, error)
	Unmount(ctx context.Context, r api.UnmountRequest) (api.Workspace, error)
	Restore(ctx context.Context, r api.RestoreRequest) (api.Workspace, error)
	Fork(ctx context.Context, r api.ForkRequest) (api.Workspace, error)
	Rollback(ctx context.Context, r api.RollbackRequest) (api.RollbackResult, error)
	Pause(ctx context.Context, r api.PauseRequest) (api.Workspace, error)
	Resume(ctx context.Context, r api.RefRequest) (api.Workspace, error)
	Workspaces(ctx context.Context, r api.ListRequest) (api.WorkspacePage, error)
	Destroy(ctx context.Context, r api.DestroyRequest) (api.DestroyResult, error)

	Snapshot(ctx context.Context, r api.SnapshotRequest) (api.Snapshot, error)
	Snapshots(ctx context.Context, r api.ListRequest) (api.SnapshotPage, error)
	Delete(ctx context.Context, r api.RefRequest) error

	Show(ctx context.Context, r api.RefRequest) (api.Object, error)
	Rename(ctx context.Context, r api.RenameRequest) (api.Object, error)

	// Dir is the directory of the home.
	Dir() string
	// Labelled gives the workspaces of all sessions that have a label, to the program itself.
	Labelled(key string) iter.Seq[sandbox.Labelled]
}
