package client

import (
	"context"
	"io"
	"slices"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// Create implements api.API.
func (c *Client) Create(ctx context.Context, r api.CreateRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallCreate, &r, r.Access, sink{progress: r.Progress}, sourceRef(&r)...)
}

// Up implements api.API.
func (c *Client) Up(ctx context.Context, r api.UpRequest) (api.UpResult, error) {
	return callAt[api.UpResult](ctx, c, wire.CallUp, &r, r.Access, sink{progress: r.Progress}, sourceRef(&r.CreateRequest)...)
}

// Mount implements api.API.
func (c *Client) Mount(ctx context.Context, r api.MountRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallMount, &r, r.Access, sink{}, &r.Workspace)
}

// Unmount implements api.API.
func (c *Client) Unmount(ctx context.Context, r api.UnmountRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallUnmount, &r, r.Access, sink{}, &r.Workspace)
}

// Snapshot implements api.API.
func (c *Client) Snapshot(ctx context.Context, r api.SnapshotRequest) (api.Snapshot, error) {
	return callAt[api.Snapshot](ctx, c, wire.CallSnapshot, &r, r.Access, sink{progress: r.Progress}, &r.Workspace)
}

// Restore implements api.API.
func (c *Client) Restore(ctx context.Context, r api.RestoreRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallRestore, &r, r.Access, sink{}, &r.Snapshot)
}

// Branch implements api.API.
func (c *Client) Branch(ctx context.Context, r api.RestoreRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallBranch, &r, r.Access, sink{}, &r.Snapshot)
}

// Fork implements api.API.
func (c *Client) Fork(ctx context.Context, r api.ForkRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallFork, &r, r.Access, sink{}, &r.Workspace)
}

// Rollback implements api.API.
func (c *Client) Rollback(ctx context.Context, r api.RollbackRequest) (api.RollbackResult, error) {
	return callAt[api.RollbackResult](ctx, c, wire.CallRollback, &r, r.Access, sink{}, &r.Workspace, &r.Snapshot)
}

// Turn implements api.API.
func (c *Client) Turn(ctx context.Context, r api.TurnRequest) (api.TurnResult, error) {
	return callAt[api.TurnResult](ctx, c, wire.CallTurn, &r, r.Access, sink{}, &r.Workspace)
}

// Turns implements api.API.
func (c *Client) Turns(ctx context.Context, r api.TurnsRequest) (api.TurnPage, error) {
	return callAt[api.TurnPage](ctx, c, wire.CallTurns, &r, r.Access, sink{}, &r.Workspace)
}

// Undo implements api.API.
func (c *Client) Undo(ctx context.Context, r api.UndoRequest) (api.UndoResult, error) {
	return callAt[api.UndoResult](ctx, c, wire.CallUndo, &r, r.Access, sink{}, &r.Workspace)
}

// Redo implements api.API.
func (c *Client) Redo(ctx context.Context, r api.UndoRequest) (api.UndoResult, error) {
	return callAt[api.UndoResult](ctx, c, wire.CallRedo, &r, r.Access, sink{}, &r.Workspace)
}

// Apply implements api.API.
func (c *Client) Apply(ctx context.Context, r api.ApplyRequest) (api.ApplyResult, error) {
	if err := c.applyTarget(ctx, &r); err != nil {
		return api.ApplyResult{}, err
	}
	refs := []*string{&r.From, &r.To, &r.Base}
	if r.Inode != "" {
		refs = []*string{&r.From, &r.Base}
	}
	got, err := callAt[api.ApplyResult](ctx, c, wire.CallApply, &r, r.Access, sink{progress: r.Progress}, refs...)
	for i := range got.Changes {
		// As in Diff.
		if ch := &got.Changes[i]; ch.RawPath != nil {
			ch.Path = string(ch.RawPath)
		}
		if ch := &got.Changes[i]; ch.RawOldPath != nil {
			ch.OldPath = string(ch.RawOldPath)
		}
	}
	for i := range got.Conflicts {
		if x := &got.Conflicts[i]; x.RawPath != nil {
			x.Path = string(x.RawPath)
		}
	}
	for i := range got.StaleReads {
		if x := &got.StaleReads[i]; x.RawPath != nil {
			x.Path = string(x.RawPath)
		}
	}
	for i := range got.Left {
		if x := &got.Left[i]; x.RawPath != nil {
			x.Path = string(x.RawPath)
		}
	}
	return got, err
}

// Base implements api.API.
func (c *Client) Base(ctx context.Context, r api.BaseRequest) (api.BaseResult, error) {
	r.Of = slices.Clone(r.Of)
	refs := make([]*string, len(r.Of))
	for i := range r.Of {
		refs[i] = &r.Of[i]
	}
	got, err := callAt[api.BaseResult](ctx, c, wire.CallBase, &r, r.Access, sink{progress: r.Progress}, refs...)
	if got.RawPath != nil {
		got.Path = string(got.RawPath)
	}
	return got, err
}

// Conflicts implements api.API.
func (c *Client) Conflicts(ctx context.Context, r api.ConflictsRequest) (api.ConflictsResult, error) {
	got, err := callAt[api.ConflictsResult](ctx, c, wire.CallConflicts, &r, r.Access, sink{}, &r.Base, &r.A, &r.B)
	for i := range got.Conflicts {
		// As in Diff.
		if x := &got.Conflicts[i]; x.RawPath != nil {
			x.Path = string(x.RawPath)
		}
	}
	return got, err
}

// Reads implements api.API.
func (c *Client) Reads(ctx context.Context, r api.RefRequest, fn func(api.Read) error) (api.ReadsResult, error) {
	to := sink{read: func(x api.Read) error {
		if x.RawPath != nil { // as in Diff
			x.Path = string(x.RawPath)
		}
		return fn(x)
	}}
	return callAt[api.ReadsResult](ctx, c, wire.CallReads, &r, r.Access, to, &r.Ref)
}

// SetQuota implements api.API.
func (c *Client) SetQuota(ctx context.Context, r api.QuotaRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallQuota, &r, r.Access, sink{}, &r.Workspace)
}

// Pause implements api.API.
func (c *Client) Pause(ctx context.Context, r api.PauseRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallPause, &r, r.Access, sink{}, &r.Workspace)
}

// Resume implements api.API.
func (c *Client) Resume(ctx context.Context, r api.RefRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallResume, &r, r.Access, sink{}, &r.Ref)
}

// Prune implements api.API.
func (c *Client) Prune(ctx context.Context, r api.PruneRequest) (api.PruneResult, error) {
	return callAt[api.PruneResult](ctx, c, wire.CallPrune, &r, r.Access, sink{}, &r.Workspace)
}

// Events implements api.API.
func (c *Client) Events(ctx context.Context, r api.EventsRequest, fn func(api.Event) error) error {
	_, err := callAt[wire.None](ctx, c, wire.CallEvents, &r, r.Access, sink{event: fn}, &r.Workspace)
	return err
}

// Workspaces implements api.API.
func (c *Client) Workspaces(ctx context.Context, r api.ListRequest) (api.WorkspacePage, error) {
	return callAt[api.WorkspacePage](ctx, c, wire.CallWorkspaces, &r, r.Access, sink{}, &r.Workspace)
}

// Snapshots implements api.API.
func (c *Client) Snapshots(ctx context.Context, r api.ListRequest) (api.SnapshotPage, error) {
	return callAt[api.SnapshotPage](ctx, c, wire.CallSnapshots, &r, r.Access, sink{}, &r.Workspace)
}

// Show implements api.API.
func (c *Client) Show(ctx context.Context, r api.RefRequest) (api.Object, error) {
	return callAt[api.Object](ctx, c, wire.CallShow, &r, r.Access, sink{}, &r.Ref)
}

// Label implements api.Labelling.
func (c *Client) Label(ctx context.Context, r api.LabelRequest) (api.Workspace, error) {
	return callAt[api.Workspace](ctx, c, wire.CallLabel, &r, r.Access, sink{}, &r.Workspace)
}

// Rename implements api.API.
func (c *Client) Rename(ctx context.Context, r api.RenameRequest) (api.Object, error) {
	return callAt[api.Object](ctx, c, wire.CallRename, &r, r.Access, sink{}, &r.Ref)
}

// Locate implements api.API. The path is as this process sees it, which need not be how the daemon does.
func (c *Client) Locate(ctx context.Context, r api.LocateRequest) (api.Workspace, error) {
	if r.Device == "" {
		there, err := here(r.Path)
		if err != nil {
			return api.Workspace{}, err
		}
		there.Access, r = r.Access, there
	}
	return call[api.Workspace](ctx, c, wire.CallLocate, r, sink{})
}

// Diff implements api.API.
func (c *Client) Diff(ctx context.Context, r api.DiffRequest, fn func(api.Change) error) error {
	r.WithContents = r.Contents != nil
	to := sink{progress: r.Progress, data: r.Contents, change: func(ch api.Change) error {
		// JSON spoils paths that are not UTF-8; the raw ones come beside them.
		if ch.RawPath != nil {
			ch.Path = string(ch.RawPath)
		}
		if ch.RawOldPath != nil {
			ch.OldPath = string(ch.RawOldPath)
		}
		return fn(ch)
	}}
	_, err := callAt[wire.None](ctx, c, wire.CallDiff, &r, r.Access, to, &r.A, &r.B)
	return err
}

// Delete implements api.API.
func (c *Client) Delete(ctx context.Context, r api.RefRequest) error {
	_, err := callAt[wire.None](ctx, c, wire.CallDelete, &r, r.Access, sink{}, &r.Ref)
	return err
}

// Destroy implements api.API.
func (c *Client) Destroy(ctx context.Context, r api.DestroyRequest) (api.DestroyResult, error) {
	if !r.Now && r.KeepFor == 0 {
		r.KeepFor = api.DefaultKeepFor // an earlier daemon, which keeps nothing, refuses the field
	}
	return callAt[api.DestroyResult](ctx, c, wire.CallDestroy, &r, r.Access, sink{}, &r.Ref)
}

// Export implements api.API.
func (c *Client) Export(ctx context.Context, r api.ExportRequest) (api.ExportResult, error) {
	r.Stream = r.Writer != nil
	to := sink{progress: r.Progress, data: r.Writer}
	return callAt[api.ExportResult](ctx, c, wire.CallExport, &r, r.Access, to, &r.Snapshot)
}

// Extract implements api.API.
func (c *Client) Extract(ctx context.Context, r api.ExtractRequest) (api.ExtractResult, error) {
	at := api.FilesRequest{Access: r.Access, Ref: r.Tree}
	refs := []*string{&r.Snapshot}
	if r.Tree != "" {
		// Only what is before the path may be a place of the host.
		if err := c.filePlace(ctx, &at); err != nil {
			return api.ExtractResult{}, err
		}
		if err := c.place(ctx, r.Access, &at.Ref); err != nil {
			return api.ExtractResult{}, err
		}
		if r.Tree = at.Ref; at.Path != "" {
			r.Tree += ":" + at.Path
		}
		refs = nil
	}
	got, err := callAt[api.ExtractResult](ctx, c, wire.CallExtract, &r, r.Access, sink{progress: r.Progress}, refs...)
	for i := range got.Skips {
		// As in Diff.
		if s := &got.Skips[i]; s.RawPath != nil {
			s.Path = string(s.RawPath)
		}
	}
	return got, err
}

// CreateToken implements api.API.
func (c *Client) CreateToken(ctx context.Context, r api.TokenRequest) (api.NewToken, error) {
	return call[api.NewToken](ctx, c, wire.CallTokenNew, r, sink{})
}

// Tokens implements api.API.
func (c *Client) Tokens(ctx context.Context, r api.ListRequest) (api.TokenPage, error) {
	return call[api.TokenPage](ctx, c, wire.CallTokens, r, sink{})
}

// RevokeToken implements api.API.
func (c *Client) RevokeToken(ctx context.Context, r api.RefRequest) error {
	_, err := call[wire.None](ctx, c, wire.CallTokenEnd, r, sink{})
	return err
}

// Stats implements api.API.
func (c *Client) Stats(ctx context.Context, r api.StatsRequest) (api.Stats, error) {
	return callAt[api.Stats](ctx, c, wire.CallStats, &r, r.Access, sink{}, &r.Ref)
}

// GC implements api.API.
func (c *Client) GC(ctx context.Context, r api.GCRequest) (api.GCResult, error) {
	return call[api.GCResult](ctx, c, wire.CallGC, r, sink{progress: r.Progress})
}

// Check implements api.API.
func (c *Client) Check(ctx context.Context, r api.CheckRequest) (api.CheckResult, error) {
	return call[api.CheckResult](ctx, c, wire.CallCheck, r, sink{progress: r.Progress})
}

// Files implements api.API.
func (c *Client) Files(ctx context.Context, r api.FilesRequest, fn func(api.File) error) error {
	if err := c.filePlace(ctx, &r); err != nil {
		return err
	}
	_, err := callAt[wire.None](ctx, c, wire.CallFiles, &r, r.Access, sink{file: func(f api.File) error {
		return fn(rawFile(f))
	}}, &r.Ref)
	return err
}

// ReadFile implements api.API.
func (c *Client) ReadFile(ctx context.Context, r api.FilesRequest, w io.Writer) (api.File, error) {
	if err := c.filePlace(ctx, &r); err != nil {
		return api.File{}, err
	}
	f, err := callAt[api.File](ctx, c, wire.CallRead, &r, r.Access, sink{data: w, raw: true}, &r.Ref)
	return rawFile(f), err
}

// rawFile puts back what JSON spoils, as in Diff.
func rawFile(f api.File) api.File {
	if f.RawPath != nil {
		f.Path = string(f.RawPath)
	}
	if f.RawTarget != nil {
		f.Target = string(f.RawTarget)
	}
	return f
}
