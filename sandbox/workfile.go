package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/internal/peer"
	"snapfs/sandbox/internal/workfiles"
)

// Calls about the files of a mounted workspace are made by a child process (package workfiles), as a program in the
// workspace would make them: this process serves the mount.

var errUnmounted = fmt.Errorf("%w: the workspace was unmounted", ErrConflict)

// StatFile implements API.
func (h *Home) StatFile(ctx context.Context, r WorkFileRequest) (f File, err error) {
	err = h.inFiles(ctx, r, "stat a file", workfiles.Call{Do: workfiles.Stat, Request: r}, &f)
	return rawFile(f), err
}

// ListDir implements API.
func (h *Home) ListDir(ctx context.Context, r WorkFileRequest, fn func(File) error) error {
	c := workfiles.Call{Do: workfiles.List, Request: r, Item: itemsOf(rawFile, fn)}
	return h.inFiles(ctx, r, "list a directory", c, &struct{}{})
}

// GetFile implements API.
func (h *Home) GetFile(ctx context.Context, r GetFileRequest, w io.Writer) (f File, err error) {
	c := workfiles.Call{Do: workfiles.Get, Request: r, Data: w}
	err = h.inFiles(ctx, r.WorkFileRequest, "read a file", c, &f)
	return rawFile(f), err
}

// PutFile implements API.
func (h *Home) PutFile(ctx context.Context, r PutFileRequest, body io.Reader) (f File, err error) {
	c := workfiles.Call{Do: workfiles.Put, Request: r, Path: r.Path, Body: body, Size: r.Size}
	err = h.changeFiles(ctx, r.WorkFileRequest, "write a file", c, &f)
	return rawFile(f), err
}

// EditFile implements API.
func (h *Home) EditFile(ctx context.Context, r EditFileRequest) (done EditFileResult, err error) {
	if len(r.Old)+len(r.New) > api.MaxEdit {
		return done, fmt.Errorf("%w: the texts of an edit have %d bytes: at most %d",
			ErrInvalid, len(r.Old)+len(r.New), api.MaxEdit)
	}
	c := workfiles.Call{Do: workfiles.Edit, Request: r, Path: r.Path}
	err = h.changeFiles(ctx, r.WorkFileRequest, "edit a file", c, &done, r.Old, r.New)
	done.File = rawFile(done.File)
	return done, err
}

// MakeDir implements API.
func (h *Home) MakeDir(ctx context.Context, r MakeDirRequest) (f File, err error) {
	c := workfiles.Call{Do: workfiles.Make, Request: r}
	err = h.changeFiles(ctx, r.WorkFileRequest, "make a directory", c, &f)
	return rawFile(f), err
}

// MoveFile implements API.
func (h *Home) MoveFile(ctx context.Context, r MoveFileRequest) error {
	c := workfiles.Call{Do: workfiles.Move, Request: r}
	return h.changeFiles(ctx, r.WorkFileRequest, "rename a file", c, &struct{}{}, r.To)
}

// RemoveFile implements API.
func (h *Home) RemoveFile(ctx context.Context, r RemoveFileRequest) error {
	c := workfiles.Call{Do: workfiles.Remove, Request: r}
	return h.changeFiles(ctx, r.WorkFileRequest, "remove a file", c, &struct{}{})
}

// Glob implements API.
func (h *Home) Glob(ctx context.Context, r GlobRequest, fn func(File) error) (done SearchResult, err error) {
	c := workfiles.Call{Do: workfiles.Glob, Request: r, Item: itemsOf(rawFile, fn)}
	return done, h.inFiles(ctx, r.WorkFileRequest, "look for files", c, &done, r.Pattern)
}

// Grep implements API.
func (h *Home) Grep(ctx context.Context, r GrepRequest, fn func(GrepMatch) error) (done SearchResult, err error) {
	raw := func(m GrepMatch) GrepMatch { m.Path = rawOr(m.RawPath, m.Path); return m }
	c := workfiles.Call{Do: workfiles.Grep, Request: r, Item: itemsOf(raw, fn)}
	return done, h.inFiles(ctx, r.WorkFileRequest, "search files", c, &done, r.Pattern, r.Include)
}

// rawOr is a path as it is, which JSON may have spoilt.
func rawOr(raw []byte, path string) string {
	if raw != nil {
		return string(raw)
	}
	return path
}

func rawFile(f File) File {
	f.Path, f.Target = rawOr(f.RawPath, f.Path), rawOr(f.RawTarget, f.Target)
	return f
}

// itemsOf reads parts of a result for fn.
func itemsOf[T any](raw func(T) T, fn func(T) error) func([]byte) error {
	return func(text []byte) error {
		var v T
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
		return fn(raw(v))
	}
}

// changeFiles is inFiles for a call that changes something.
func (h *Home) changeFiles(
	ctx context.Context, r WorkFileRequest, what string, c workfiles.Call, into any, texts ...string,
) error {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	return h.makeInFiles(ctx, r, what, c, into, texts)
}

// inFiles makes a call in the workspace that a request names. texts are what else is part of the request.
func (h *Home) inFiles(
	ctx context.Context, r WorkFileRequest, what string, c workfiles.Call, into any, texts ...string,
) error {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	return h.makeInFiles(ctx, r, what, c, into, texts)
}

func (h *Home) makeInFiles(
	ctx context.Context, r WorkFileRequest, what string, c workfiles.Call, into any, texts []string,
) error {
	l, err := h.filesOf(ctx, r, what, texts)
	if err != nil {
		return err
	}
	return h.makeOn(ctx, l, c, into)
}

// filesOf gives the connection of the workspace that a request names.
func (h *Home) filesOf(ctx context.Context, r WorkFileRequest, what string, texts []string) (*live, error) {
	for _, text := range append(texts, r.Path) {
		if !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: paths and texts of a call about files must be UTF-8", ErrInvalid)
		}
	}
	w, err := h.useWorkspace(ctx, r.Access, r.Workspace, what)
	if err != nil {
		return nil, err
	}
	l := h.liveOf(w.ID)
	if l == nil {
		return nil, fmt.Errorf("%w: workspace %s is not mounted: mount it to use its files", ErrConflict, w.ID)
	}
	return l, nil
}

// makeOn makes a call where a connection is mounted.
func (h *Home) makeOn(ctx context.Context, l *live, c workfiles.Call, into any) error {
	c.User = peer.From(ctx)
	c.Plain = caller.From(ctx).Remotely() // what it writes belongs to root as a rule, and users of this machine may run it
	met := false
	c.Opened = func() error {
		met = true
		return h.stillHas(l)
	}
	var err error
	if c.Mount, err = mountOf(l, l.at().path); err != nil {
		return err
	}
	err = until(ctx, l.mount.Done(), errUnmounted, func(ctx context.Context) error { return h.files.Make(ctx, c, into) })
	if met || !errors.Is(err, ErrConflict) {
		return err
	}
	// It was moved, or is detached.
	moved, e := pointOf(l)
	if e != nil {
		return e
	}
	if moved == c.Mount.Path {
		return err
	}
	c.Mount.Path = moved
	return until(ctx, l.mount.Done(), errUnmounted, func(ctx context.Context) error { return h.files.Make(ctx, c, into) })
}

// mountOf is where a child finds the mount of a connection.
func mountOf(l *live, path string) (workfiles.Mount, error) {
	m := workfiles.Mount{Path: path, Device: deviceNumber(l.device)}
	if v := l.at().view; !v.own() && !v.chroot {
		if m.Process = v.process(); m.Process == 0 {
			return m, fmt.Errorf("%w: workspace %s is detached: the mount namespace in which it was mounted is gone",
				ErrConflict, l.workspace())
		}
	}
	return m, nil
}

// pointOf is where a connection is mounted now.
func pointOf(l *live) (string, error) {
	mounts, err := l.at().view.mounts()
	if err != nil {
		return "", err
	}
	point := ""
	for _, e := range l.entries(mounts) {
		if e.root == "/" {
			point = e.point
		}
	}
	if point == "" {
		return "", fmt.Errorf("%w: workspace %s is not mounted where its files can be used: unmount it with force, "+
			"and mount it again", ErrConflict, l.workspace())
	}
	return point, nil
}

// stillHas fails if a connection may have ended, and its device number be that of another one.
func (h *Home) stillHas(l *live) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.mount.Ended() || h.live[l.workspace()] != l {
		return errUnmounted
	}
	for _, other := range h.live {
		if other != l && other.device == l.device {
			return errUnmounted
		}
	}
	return nil
}

// until runs fn with a context that ends when a channel is closed; then the error is cause.
func until(ctx context.Context, closed <-chan struct{}, cause error, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with fn
		select {
		case <-closed:
			cancel(cause)
		case <-done:
		}
	}()
	err := fn(ctx)
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(ctx), cause) {
		return cause
	}
	return err
}
