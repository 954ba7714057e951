package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// pieceSize is how much of a file's contents is sent at a time, in bytes.
const pieceSize = 64 << 10

// PutFile implements api.WorkFiles. It reads nothing of body before the daemon has room for the call.
func (c *Client) PutFile(ctx context.Context, r api.PutFileRequest, body io.Reader) (api.File, error) {
	if err := c.place(ctx, r.Access, &r.Workspace); err != nil {
		return api.File{}, err
	}
	if _, err := encode(r); err != nil {
		return api.File{}, err
	}
	head, err := wire.HeaderJSON(r)
	if err != nil {
		return api.File{}, err
	}
	if len(head) > wire.MaxRequestHeader {
		return api.File{}, fmt.Errorf("%w: a path of %d bytes is too long", api.ErrInvalid, len(r.Path))
	}
	for pause := firstAsk; ; pause = min(2*pause, lastAsk) {
		f, begun, err := c.putOnce(ctx, head, body)
		busy := (*wire.Error)(nil)
		if begun || !errors.As(err, &busy) || !busy.Busy {
			return rawFile(f), err
		}
		wait(ctx, pause)
		if ctx.Err() != nil {
			return api.File{}, ctx.Err()
		}
	}
}

// putOnce makes the call; begun tells whether something of body was read.
func (c *Client) putOnce(ctx context.Context, request string, from io.Reader) (f api.File, begun bool, err error) {
	if err := ctx.Err(); err != nil {
		return f, false, err
	}
	x := c.newExchange(ctx, wire.CallPutFile)
	defer x.end()
	req, err := c.request(x, wire.CallPutFile, nil)
	if err != nil {
		return f, false, err
	}
	req.Header.Set(wire.RequestHeader, request)
	resp, begun, err := c.conn.upload(req, from)
	if bad := (readError{}); errors.As(err, &bad) {
		return f, begun, bad.error
	}
	f, err = answer[api.File](ctx, c, x, wire.CallPutFile, resp, err, sink{})
	return f, begun, err
}

// readError is an error of what is sent.
type readError struct{ error }

// upload is RoundTrip for a body without a known size, of which nothing is read before the daemon has asked for it. It
// reads the response while it sends: the daemon may not want all.
func (t *transport) upload(req *http.Request, from io.Reader) (resp *http.Response, begun bool, err error) {
	ctx := req.Context()
	c, err := t.take(ctx)
	if err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	fail := func(err error) (*http.Response, bool, error) {
		stop()
		_ = c.Close() // nothing is buffered
		return nil, begun, err
	}
	w := bufio.NewWriterSize(c, pieceSize)
	if err := writeHead(w, req); err != nil {
		return fail(err)
	}
	resp, err = c.response(req)
	if err != nil {
		return fail(err)
	}
	sent := false
	if resp.StatusCode == http.StatusContinue {
		begun = true
		type answer struct {
			resp *http.Response
			err  error
		}
		answered := make(chan answer, 1)
		go func() { // ends with the connection, awaited below
			resp, err := c.response(req)
			_ = c.SetWriteDeadline(time.Unix(1, 0)) // nothing more is wanted
			answered <- answer{resp, err}
		}()
		err := send(w, from, func() bool { return len(answered) > 0 })
		if bad := (readError{}); errors.As(err, &bad) {
			_ = c.SetDeadline(time.Unix(1, 0))
			<-answered
			return fail(err)
		}
		sent = err == nil
		a := <-answered // of a daemon that did not want all, or was asked to end the call
		_ = c.SetWriteDeadline(time.Time{})
		if a.err != nil {
			return fail(a.err)
		}
		resp = a.resp
	}
	resp.Body = &body{ReadCloser: resp.Body, t: t, c: c, stop: stop, reusable: sent && !resp.Close}
	return resp, begun, nil
}

// writeHead sends a request without its body.
func writeHead(w *bufio.Writer, req *http.Request) error {
	h := req.Header.Clone()
	h.Set("Transfer-Encoding", "chunked")
	h.Set("Expect", "100-continue")
	if _, err := fmt.Fprintf(w, "POST %s HTTP/1.1\r\nHost: snapfs\r\n", req.URL.Path); err != nil {
		return err
	}
	if err := h.Write(w); err != nil {
		return err
	}
	if _, err := w.WriteString("\r\n"); err != nil {
		return err
	}
	return w.Flush()
}

// send sends a body in pieces until it is over, or nothing more is wanted.
func send(w *bufio.Writer, from io.Reader, enough func() bool) error {
	pieces := httputil.NewChunkedWriter(w)
	room := make([]byte, pieceSize)
	for {
		n, err := from.Read(room)
		if enough() {
			return errEnough
		}
		if n > 0 {
			if _, err := pieces.Write(room[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return readError{err}
		}
	}
	if err := pieces.Close(); err != nil {
		return err
	}
	if _, err := w.WriteString("\r\n"); err != nil { // no trailers
		return err
	}
	return w.Flush()
}

var errEnough = errors.New("the daemon wants no more")
