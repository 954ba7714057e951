package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/internal/pace"
)

// listDirRequest is that of a listing, which takes longer than what has the same request.
type listDirRequest struct{ sandbox.WorkFileRequest }

// putFileRequest comes in a header, and what the file is to have in the body.
type putFileRequest struct {
	sandbox.PutFileRequest
	body io.Reader
}

// read takes the request of what came over HTTP.
func (p *putFileRequest) read(w http.ResponseWriter, r *http.Request) error {
	text := r.Header.Get(wire.RequestHeader)
	if text == "" {
		return fmt.Errorf("%w: request: no header %s", sandbox.ErrInvalid, wire.RequestHeader)
	}
	p.Size = -1
	if r.ContentLength >= 0 {
		p.Size = r.ContentLength
	}
	if err := decode(strings.NewReader(text), maxRequest, p); err != nil {
		return err
	}
	ctl := http.NewResponseController(w)
	// An error can be told before the body is there.
	if err := ctl.EnableFullDuplex(); err != nil {
		return err
	}
	p.body = &contents{r.Body, ctl, newBodyPace()}
	return nil
}

// contents are those of a file: the client has bodyWait for each bodyBytes.
type contents struct {
	from io.Reader
	ctl  *http.ResponseController
	pace pace.Pace
}

// Read implements io.Reader.
func (c *contents) Read(p []byte) (int, error) {
	n, err := c.pace.Wait(func() (int, error) {
		_ = c.ctl.SetReadDeadline(c.pace.Deadline()) // only a writer that is not the server's has none
		return c.from.Read(p)
	})
	if err == nil || errors.Is(err, io.EOF) {
		_ = c.ctl.SetReadDeadline(time.Time{}) // as above
		return n, err
	}
	if many := (*http.MaxBytesError)(nil); errors.As(err, &many) {
		return n, fmt.Errorf("%w: the contents have more than the %d bytes that a token may send", sandbox.ErrInvalid,
			many.Limit)
	}
	return n, fmt.Errorf("%w: the contents end early: %w", sandbox.ErrInvalid, err)
}

// fileRoutes are those of calls about the files of a workspace.
func (s *server) fileRoutes(add func(call string, h http.HandlerFunc)) {
	h := s.home
	add(wire.CallStatFile, handle(s, plain(h.StatFile)))
	add(wire.CallListDir, handle(s, func(
		ctx context.Context, r listDirRequest, out *stream,
	) (wire.None, error) {
		return wire.None{}, h.ListDir(ctx, r.WorkFileRequest, files(out))
	}))
	add(wire.CallGetFile, handle(s, func(
		ctx context.Context, r sandbox.GetFileRequest, out *stream,
	) (sandbox.File, error) {
		return h.GetFile(ctx, r, out.data())
	}))
	add(wire.CallPutFile, handle(s, func(
		ctx context.Context, r putFileRequest, _ *stream,
	) (sandbox.File, error) {
		return h.PutFile(ctx, r.PutFileRequest, r.body)
	}))
	add(wire.CallEditFile, handle(s, plain(h.EditFile)))
	add(wire.CallMakeDir, handle(s, plain(h.MakeDir)))
	add(wire.CallMoveFile, handle(s, silent(h.MoveFile)))
	add(wire.CallRemoveFile, handle(s, silent(h.RemoveFile)))
	add(wire.CallGlob, handle(s, func(
		ctx context.Context, r sandbox.GlobRequest, out *stream,
	) (sandbox.SearchResult, error) {
		return h.Glob(ctx, r, files(out))
	}))
	add(wire.CallGrep, handle(s, func(
		ctx context.Context, r sandbox.GrepRequest, out *stream,
	) (sandbox.SearchResult, error) {
		return h.Grep(ctx, r, func(m sandbox.GrepMatch) error { return out.send(wire.Frame{Match: &m}) })
	}))
	add(wire.CallWatchFiles, handle(s, func(
		ctx context.Context, r sandbox.WatchFilesRequest, out *stream,
	) (wire.None, error) {
		ready := func() { _ = out.send(wire.Frame{Ready: true}) } // a client that is gone cancels the call
		err := h.WatchFiles(ctx, r, ready, func(e sandbox.FileEvent) error {
			return out.send(wire.Frame{Watched: &e})
		})
		if errors.Is(err, context.Canceled) && s.calls.Err() != nil { // it was not the client who wanted that
			err = errStopping
		}
		return wire.None{}, err
	}))
}

// files sends descriptions of files.
func files(out *stream) func(sandbox.File) error {
	return func(f sandbox.File) error { return out.send(wire.Frame{File: &f}) }
}
