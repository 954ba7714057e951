package client

import (
	"context"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// Create implements api.API.
func (c *Client) Create(ctx context.Context, r api.CreateRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallCreate, r, sink{progress: r.Progress})
}

// Up implements api.API.
func (c *Client) Up(ctx context.Context, r api.UpRequest) (api.UpResult, error) {
	return call[api.UpResult](ctx, c, wire.CallUp, r, sink{progress: r.Progress})
}

// Mount implements api.API.
func (c *Client) Mount(ctx context.Context, r api.MountRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallMount, r, sink{})
}

// Unmount implements api.API.
func (c *Client) Unmount(ctx context.Context, r api.UnmountRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallUnmount, r, sink{})
}

// Snapshot implements api.API.
func (c *Client) Snapshot(ctx context.Context, r api.SnapshotRequest) (api.Snapshot, error) {
	return call[api.Snapshot](ctx, c, wire.CallSnapshot, r, sink{progress: r.Progress})
}

// Restore implements api.API.
func (c *Client) Restore(ctx context.Context, r api.RestoreRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallRestore, r, sink{})
}

// Branch implements api.API.
func (c *Client) Branch(ctx context.Context, r api.RestoreRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallBranch, r, sink{})
}

// Fork implements api.API.
func (c *Client) Fork(ctx context.Context, r api.ForkRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallFork, r, sink{})
}

// Rollback implements api.API.
func (c *Client) Rollback(ctx context.Context, r api.RollbackRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallRollback, r, sink{})
}

// Pause implements api.API.
func (c *Client) Pause(ctx context.Context, r api.PauseRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallPause, r, sink{})
}

// Resume implements api.API.
func (c *Client) Resume(ctx context.Context, r api.RefRequest) (api.Workspace, error) {
	return call[api.Workspace](ctx, c, wire.CallResume, r, sink{})
}

// Prune implements api.API.
func (c *Client) Prune(ctx context.Context, r api.PruneRequest) (api.PruneResult, error) {
	return call[api.PruneResult](ctx, c, wire.CallPrune, r, sink{})
}

// Events implements api.API.
func (c *Client) Events(ctx context.Context, r api.EventsRequest, fn func(api.Event) error) error {
	_, err := call[wire.None](ctx, c, wire.CallEvents, r, sink{event: fn})
	return err
}

// Workspaces implements api.API.
func (c *Client) Workspaces(ctx context.Context, r api.ListRequest) (api.WorkspacePage, error) {
	return call[api.WorkspacePage](ctx, c, wire.CallWorkspaces, r, sink{})
}

// Snapshots implements api.API.
func (c *Client) Snapshots(ctx context.Context, r api.ListRequest) (api.SnapshotPage, error) {
	return call[api.SnapshotPage](ctx, c, wire.CallSnapshots, r, sink{})
}

// Show implements api.API.
func (c *Client) Show(ctx context.Context, r api.RefRequest) (api.Object, error) {
	return call[api.Object](ctx, c, wire.CallShow, r, sink{})
}

// Diff implements api.API.
func (c *Client) Diff(ctx context.Context, r api.DiffRequest, fn func(api.Change) error) error {
	_, err := call[wire.None](ctx, c, wire.CallDiff, r, sink{progress: r.Progress, change: func(ch api.Change) error {
		// JSON spoils paths that are not UTF-8; the raw ones come beside them.
		if ch.RawPath != nil {
			ch.Path = string(ch.RawPath)
		}
		if ch.RawOldPath != nil {
			ch.OldPath = string(ch.RawOldPath)
		}
		return fn(ch)
	}})
	return err
}

// Delete implements api.API.
func (c *Client) Delete(ctx context.Context, r api.RefRequest) error {
	_, err := call[wire.None](ctx, c, wire.CallDelete, r, sink{})
	return err
}

// Destroy implements api.API.
func (c *Client) Destroy(ctx context.Context, r api.RefRequest) error {
	_, err := call[wire.None](ctx, c, wire.CallDestroy, r, sink{})
	return err
}

// Export implements api.API.
func (c *Client) Export(ctx context.Context, r api.ExportRequest) (api.ExportResult, error) {
	return call[api.ExportResult](ctx, c, wire.CallExport, r, sink{progress: r.Progress})
}

// Extract implements api.API.
func (c *Client) Extract(ctx context.Context, r api.ExtractRequest) (api.ExtractResult, error) {
	got, err := call[api.ExtractResult](ctx, c, wire.CallExtract, r, sink{progress: r.Progress})
	for i := range got.Skips {
		// As in Diff.
		if s := &got.Skips[i]; s.RawPath != nil {
			s.Path = string(s.RawPath)
		}
	}
	return got, err
}

// Stats implements api.API.
func (c *Client) Stats(ctx context.Context, r api.StatsRequest) (api.Stats, error) {
	return call[api.Stats](ctx, c, wire.CallStats, r, sink{})
}

// GC implements api.API.
func (c *Client) GC(ctx context.Context, r api.GCRequest) (api.GCResult, error) {
	return call[api.GCResult](ctx, c, wire.CallGC, r, sink{progress: r.Progress})
}

// Check implements api.API.
func (c *Client) Check(ctx context.Context, r api.CheckRequest) (api.CheckResult, error) {
	return call[api.CheckResult](ctx, c, wire.CallCheck, r, sink{progress: r.Progress})
}
