package client

import (
	"context"
	"io"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// StatFile implements api.WorkFiles.
func (c *Client) StatFile(ctx context.Context, r api.WorkFileRequest) (api.File, error) {
	f, err := callAt[api.File](ctx, c, wire.CallStatFile, &r, r.Access, sink{}, &r.Workspace)
	return rawFile(f), err
}

// ListDir implements api.WorkFiles.
func (c *Client) ListDir(ctx context.Context, r api.WorkFileRequest, fn func(api.File) error) error {
	_, err := callAt[wire.None](ctx, c, wire.CallListDir, &r, r.Access, filesTo(fn), &r.Workspace)
	return err
}

// filesTo takes descriptions of files.
func filesTo(fn func(api.File) error) sink {
	return sink{file: func(f api.File) error { return fn(rawFile(f)) }}
}

// GetFile implements api.WorkFiles.
func (c *Client) GetFile(ctx context.Context, r api.GetFileRequest, w io.Writer) (api.File, error) {
	f, err := callAt[api.File](ctx, c, wire.CallGetFile, &r, r.Access, sink{data: w, raw: true}, &r.Workspace)
	return rawFile(f), err
}

// EditFile implements api.WorkFiles.
func (c *Client) EditFile(ctx context.Context, r api.EditFileRequest) (api.EditFileResult, error) {
	done, err := callAt[api.EditFileResult](ctx, c, wire.CallEditFile, &r, r.Access, sink{}, &r.Workspace)
	done.File = rawFile(done.File)
	return done, err
}

// MakeDir implements api.WorkFiles.
func (c *Client) MakeDir(ctx context.Context, r api.MakeDirRequest) (api.File, error) {
	f, err := callAt[api.File](ctx, c, wire.CallMakeDir, &r, r.Access, sink{}, &r.Workspace)
	return rawFile(f), err
}

// MoveFile implements api.WorkFiles.
func (c *Client) MoveFile(ctx context.Context, r api.MoveFileRequest) error {
	_, err := callAt[wire.None](ctx, c, wire.CallMoveFile, &r, r.Access, sink{}, &r.Workspace)
	return err
}

// RemoveFile implements api.WorkFiles.
func (c *Client) RemoveFile(ctx context.Context, r api.RemoveFileRequest) error {
	_, err := callAt[wire.None](ctx, c, wire.CallRemoveFile, &r, r.Access, sink{}, &r.Workspace)
	return err
}

// Glob implements api.WorkFiles.
func (c *Client) Glob(ctx context.Context, r api.GlobRequest, fn func(api.File) error) (api.SearchResult, error) {
	return callAt[api.SearchResult](ctx, c, wire.CallGlob, &r, r.Access, filesTo(fn), &r.Workspace)
}

// Grep implements api.WorkFiles.
func (c *Client) Grep(ctx context.Context, r api.GrepRequest, fn func(api.GrepMatch) error) (api.SearchResult, error) {
	to := sink{match: func(m api.GrepMatch) error {
		if m.RawPath != nil {
			m.Path = string(m.RawPath)
		}
		return fn(m)
	}}
	return callAt[api.SearchResult](ctx, c, wire.CallGrep, &r, r.Access, to, &r.Workspace)
}

// WatchFiles implements api.WorkFiles.
func (c *Client) WatchFiles(
	ctx context.Context, r api.WatchFilesRequest, ready func(), fn func(api.FileEvent) error,
) error {
	to := sink{ready: ready, watched: func(e api.FileEvent) error {
		if e.RawPath != nil {
			e.Path = string(e.RawPath)
		}
		if e.RawOldPath != nil {
			e.OldPath = string(e.RawOldPath)
		}
		return fn(e)
	}}
	_, err := callAt[wire.None](ctx, c, wire.CallWatchFiles, &r, r.Access, to, &r.Workspace)
	return err
}
