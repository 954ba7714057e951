package daemon

import (
	"context"

	"snapfs/sandbox"
)

// Create implements sandbox.API.
func (c *Client) Create(ctx context.Context, r sandbox.CreateRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callCreate, r, sink{progress: r.Progress})
}

// Up implements sandbox.API.
func (c *Client) Up(ctx context.Context, r sandbox.UpRequest) (sandbox.UpResult, error) {
	return call[sandbox.UpResult](ctx, c, callUp, r, sink{progress: r.Progress})
}

// Mount implements sandbox.API.
func (c *Client) Mount(ctx context.Context, r sandbox.MountRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callMount, r, sink{})
}

// Unmount implements sandbox.API.
func (c *Client) Unmount(ctx context.Context, r sandbox.UnmountRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callUnmount, r, sink{})
}

// Snapshot implements sandbox.API.
func (c *Client) Snapshot(ctx context.Context, r sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	return call[sandbox.Snapshot](ctx, c, callSnapshot, r, sink{progress: r.Progress})
}

// Restore implements sandbox.API.
func (c *Client) Restore(ctx context.Context, r sandbox.RestoreRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callRestore, r, sink{})
}

// Branch implements sandbox.API.
func (c *Client) Branch(ctx context.Context, r sandbox.RestoreRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callBranch, r, sink{})
}

// Fork implements sandbox.API.
func (c *Client) Fork(ctx context.Context, r sandbox.ForkRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callFork, r, sink{})
}

// Rollback implements sandbox.API.
func (c *Client) Rollback(ctx context.Context, r sandbox.RollbackRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callRollback, r, sink{})
}

// Pause implements sandbox.API.
func (c *Client) Pause(ctx context.Context, r sandbox.PauseRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callPause, r, sink{})
}

// Resume implements sandbox.API.
func (c *Client) Resume(ctx context.Context, r sandbox.RefRequest) (sandbox.Workspace, error) {
	return call[sandbox.Workspace](ctx, c, callResume, r, sink{})
}

// Prune implements sandbox.API.
func (c *Client) Prune(ctx context.Context, r sandbox.PruneRequest) (sandbox.PruneResult, error) {
	return call[sandbox.PruneResult](ctx, c, callPrune, r, sink{})
}

// Events implements sandbox.API.
func (c *Client) Events(ctx context.Context, r sandbox.EventsRequest, fn func(sandbox.Event) error) error {
	_, err := call[none](ctx, c, callEvents, r, sink{event: fn})
	return err
}

// Workspaces implements sandbox.API.
func (c *Client) Workspaces(ctx context.Context, r sandbox.ListRequest) (sandbox.WorkspacePage, error) {
	return call[sandbox.WorkspacePage](ctx, c, callWorkspaces, r, sink{})
}

// Snapshots implements sandbox.API.
func (c *Client) Snapshots(ctx context.Context, r sandbox.ListRequest) (sandbox.SnapshotPage, error) {
	return call[sandbox.SnapshotPage](ctx, c, callSnapshots, r, sink{})
}

// Show implements sandbox.API.
func (c *Client) Show(ctx context.Context, r sandbox.RefRequest) (sandbox.Object, error) {
	return call[sandbox.Object](ctx, c, callShow, r, sink{})
}

// Diff implements sandbox.API.
func (c *Client) Diff(ctx context.Context, r sandbox.DiffRequest, fn func(sandbox.Change) error) error {
	_, err := call[none](ctx, c, callDiff, r, sink{change: func(ch sandbox.Change) error {
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

// Delete implements sandbox.API.
func (c *Client) Delete(ctx context.Context, r sandbox.RefRequest) error {
	_, err := call[none](ctx, c, callDelete, r, sink{})
	return err
}

// Destroy implements sandbox.API.
func (c *Client) Destroy(ctx context.Context, r sandbox.RefRequest) error {
	_, err := call[none](ctx, c, callDestroy, r, sink{})
	return err
}

// Export implements sandbox.API.
func (c *Client) Export(ctx context.Context, r sandbox.ExportRequest) (sandbox.ExportResult, error) {
	return call[sandbox.ExportResult](ctx, c, callExport, r, sink{progress: r.Progress})
}

// Stats implements sandbox.API.
func (c *Client) Stats(ctx context.Context, r sandbox.StatsRequest) (sandbox.Stats, error) {
	return call[sandbox.Stats](ctx, c, callStats, r, sink{})
}

// GC implements sandbox.API.
func (c *Client) GC(ctx context.Context, r sandbox.GCRequest) (sandbox.GCResult, error) {
	return call[sandbox.GCResult](ctx, c, callGC, r, sink{progress: r.Progress})
}

// Check implements sandbox.API.
func (c *Client) Check(ctx context.Context, r sandbox.CheckRequest) (sandbox.CheckResult, error) {
	return call[sandbox.CheckResult](ctx, c, callCheck, r, sink{progress: r.Progress})
}
