package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// dialWait bounds how long a daemon may take to answer Dial.
const dialWait = 5 * time.Second

// Client is a connection to a daemon. Safe for concurrent use.
type Client struct {
	dir     string
	version string // of the program that asks
	conn    *transport

	daemon atomic.Pointer[daemon] // as it last told of itself
}

// daemon is what a daemon tells of its versions. Immutable.
type daemon struct {
	version string
	speaks  wire.Spoken
}

var _ api.API = (*Client)(nil)

// Dial connects to the daemon of the home in dir; api.ErrUnavailable if there is none that answers.
func Dial(ctx context.Context, dir string) (*Client, error) { return DialAs(ctx, dir, "") }

// DialAs is Dial for a program of a version, which errors name. A wire.VersionError if the daemon is of a version that
// this package cannot talk to.
func DialAs(ctx context.Context, dir, version string) (*Client, error) {
	c := &Client{dir: dir, version: version, conn: &transport{dir: dir}}
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	info, err := c.infoUnlessStopped(ctx)
	if d := c.daemon.Load(); err == nil && d.version == "" { // an old one
		c.daemon.Store(&daemon{info.Version, d.speaks})
	}
	if err != nil {
		c.conn.closeIdle()
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, wire.Unavailable("the daemon of %s (process %d) does not answer within %s", dir, c.conn.peer.Load(), dialWait)
		}
		return nil, err
	}
	return c, nil
}

// Close gives up the connection; the daemon goes on.
func (c *Client) Close() error {
	c.conn.closeIdle()
	return nil
}

// Info asks the daemon about itself.
func (c *Client) Info(ctx context.Context) (wire.Info, error) {
	return call[wire.Info](ctx, c, wire.CallInfo, wire.None{}, sink{})
}

// Reload asks the daemon to open its log anew and to read its settings again. Its error is that of the settings.
func (c *Client) Reload(ctx context.Context) error {
	_, err := call[wire.None](ctx, c, wire.CallReload, wire.None{}, sink{})
	return err
}

// InUse lists the mounts that programs use, of all sessions.
func (c *Client) InUse(ctx context.Context) ([]wire.UsedMount, error) {
	r, err := call[wire.InUse](ctx, c, wire.CallInUse, wire.None{}, sink{})
	return r.Mounts, err
}

// Stop asks the daemon to unmount everything and end, and waits until its home is free. Its error is that of closing
// the home.
func (c *Client) Stop(ctx context.Context) error { return c.StopWith(ctx, wire.StopRequest{}, nil) }

// StopWith is Stop with conditions, or for another program to go on as the daemon, which waits for calls under way and
// reports that as progress unless that is nil. A wire.VersionError if the daemon is too old to understand these.
func (c *Client) StopWith(ctx context.Context, r wire.StopRequest, progress func(api.Progress)) error {
	spoken := 0
	if d := c.daemon.Load(); d != nil {
		spoken = d.speaks.Common(wire.Speaks)
	}
	switch {
	case r != (wire.StopRequest{}) && spoken < 2:
		return c.misunderstood("it cannot tell whether its mounts are in use", true)
	case r.Successor && spoken < 3:
		return c.misunderstood("it cannot leave its mounts to another process", true)
	}
	_, err := call[wire.None](ctx, c, wire.CallStop, r, sink{progress: progress})
	c.conn.closeIdle()
	return err
}

// Process is the process that serves the home; 0 if it is in a pid namespace that is not visible here.
func (c *Client) Process() int { return int(c.conn.peer.Load()) }

// DaemonVersion is the version of the daemon's program, "" if it has not told.
func (c *Client) DaemonVersion() string {
	if d := c.daemon.Load(); d != nil {
		return d.version
	}
	return ""
}

// misunderstood makes an error of versions that differ.
func (c *Client) misunderstood(what string, daemonOlder bool) error {
	return &wire.VersionError{Daemon: c.DaemonVersion(), Command: c.version, What: what, DaemonOlder: daemonOlder}
}

// meet takes note of what the daemon tells of itself, and reports whether it can be talked to.
func (c *Client) meet(h http.Header) error {
	d := &daemon{version: h.Get(wire.VersionHeader), speaks: wire.ParseSpoken(h.Get(wire.SpokenHeader))}
	if d.version == "" {
		d.version = c.DaemonVersion()
	}
	c.daemon.Store(d)
	if d.speaks.Common(wire.Speaks) == 0 {
		return c.misunderstood("", d.speaks.To < wire.Speaks.From)
	}
	return nil
}

// sink takes the lines of a response that come before the result. Fields may be nil.
type sink struct {
	progress func(api.Progress)
	change   func(api.Change) error
	event    func(api.Event) error
	file     func(api.File) error
	read     func(api.Read) error
	document func(api.Document) error
	match    func(api.GrepMatch) error
	watched  func(api.FileEvent) error
	ready    func()
	data     io.Writer
	raw      bool // data is wanted as it is
}

// unknownField is how a daemon refuses a request with a field that came later.
const unknownField = "request: json: unknown field "

// replaced is what the JSON encoder writes for bytes that are not UTF-8.
var replaced = []byte(`\ufffd`)

// spoiled reports whether the encoder of a text met bytes that are not UTF-8. A genuine U+FFFD it writes as it is, and
// a backslash as two: an odd number of them begins an escape.
func spoiled(text []byte) bool {
	for {
		i := bytes.Index(text, replaced)
		if i < 0 {
			return false
		}
		before := text[:i]
		if (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 0 {
			return true
		}
		text = text[i+len(replaced):]
	}
}

// Waits before a daemon that has no room for a call is asked again.
const (
	firstAsk = 20 * time.Millisecond
	lastAsk  = time.Second
)

// encoded is a request that is JSON already.
type encoded []byte

// encode gives the JSON of a request; api.ErrInvalid if JSON would spoil it.
func encode(request any) (encoded, error) {
	if body, ok := request.(encoded); ok {
		return body, nil
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("%w: request: %w", api.ErrInvalid, err)
	}
	if spoiled(body) {
		return nil, fmt.Errorf("%w: names and paths in a call to a daemon must be UTF-8", api.ErrInvalid)
	}
	return body, nil
}

// call makes one call. When ctx ends, a lasting one is cancelled in the daemon, and its final answer counts: the
// result, if the cancellation came too late. While the daemon has no room for the call, call waits, without a
// connection, and reports that as progress.
func call[Res any](ctx context.Context, c *Client, name string, request any, to sink) (result Res, err error) {
	for pause := firstAsk; ; pause = min(2*pause, lastAsk) {
		result, err = once[Res](ctx, c, name, request, to)
		if busy := (*wire.Error)(nil); !errors.As(err, &busy) || !busy.Busy {
			return result, err
		}
		if to.progress != nil {
			to.progress(api.Progress{Stage: api.StageWaiting, Total: -1})
		}
		wait(ctx, pause)
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
	}
}

// once is call without waiting: a daemon that has no room for it answers with an error that is Busy.
func once[Res any](ctx context.Context, c *Client, name string, request any, to sink) (result Res, err error) {
	if err := ctx.Err(); err != nil {
		return result, err
	}
	body, err := encode(request)
	if err != nil {
		return result, err
	}
	x := c.newExchange(ctx, name)
	defer x.end() // an error of a change function ends the call in the daemon, too
	req, err := c.request(x, name, bytes.NewReader(body))
	if err != nil {
		return result, err
	}
	if to.raw {
		req.Header.Set("Accept", wire.RawType) // an earlier daemon does not know that
	}
	resp, err := c.conn.RoundTrip(req)
	return answer[Res](ctx, c, x, name, resp, err, to)
}

// request makes the HTTP request of a call.
func (c *Client) request(x *exchange, name string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(x.ctx, http.MethodPost, "http://snapfs"+wire.Route(name), body)
	if err != nil {
		return nil, err
	}
	if x.id != "" {
		req.Header.Set(wire.CallHeader, x.id)
	}
	req.Header.Set(wire.SpokenHeader, wire.Speaks.String())
	req.Header.Set(wire.VersionHeader, c.version)
	return req, nil
}

// answer reads the response to a call, or says why there is none.
func answer[Res any](
	ctx context.Context, c *Client, x *exchange, name string, resp *http.Response, err error, to sink,
) (result Res, _ error) {
	if err != nil {
		if x.ctx.Err() != nil {
			return result, x.cutOff(c.dir)
		}
		return result, wire.Unavailable("no daemon serves %s: %w", c.dir, cause(err))
	}
	defer func() { _ = resp.Body.Close() }() // everything was read, or nothing more is wanted
	if err := c.meet(resp.Header); err != nil {
		return result, err
	}
	if resp.StatusCode != http.StatusOK {
		return result, c.misunderstood("it does not know the call "+name, true)
	}
	from := io.Reader(resp.Body)
	if resp.Header.Get("Content-Type") == wire.RawType {
		text, err := takeRaw(resp, to.data)
		if bad := (writeError{}); errors.As(err, &bad) {
			return result, bad.error
		}
		from = io.MultiReader(strings.NewReader(text), failing{err})
	}
	lines := json.NewDecoder(from)
	for {
		var line struct {
			Progress *api.Progress   `json:"progress"`
			Change   *api.Change     `json:"change"`
			Event    *api.Event      `json:"event"`
			File     *api.File       `json:"file"`
			Read     *api.Read       `json:"read"`
			Document *api.Document   `json:"document"`
			Match    *api.GrepMatch  `json:"match"`
			Watched  *api.FileEvent  `json:"watched"`
			Ready    bool            `json:"ready"`
			Data     []byte          `json:"data"`
			Result   json.RawMessage `json:"result"`
			Error    *wire.Error     `json:"error"`
		}
		err := lines.Decode(&line)
		switch {
		case err != nil && x.ctx.Err() != nil:
			return result, x.cutOff(c.dir)
		case err != nil:
			return result, wire.Unavailable("the daemon of %s went away during the call: %w", c.dir, cause(err))
		case line.Error != nil && ctx.Err() != nil && errors.Is(line.Error, context.Canceled):
			return result, ctx.Err()
		case line.Error != nil && strings.Contains(line.Error.Message, unknownField):
			_, field, _ := strings.Cut(line.Error.Message, unknownField)
			return result, c.misunderstood("it does not know "+field+" of the call "+name, true)
		case line.Error != nil:
			return result, line.Error
		case line.Result != nil:
			if err := json.Unmarshal(line.Result, &result); err != nil {
				return result, fmt.Errorf("response of the daemon: %w", err)
			}
			// The end of the body lets the connection be used again; that of a raw one was seen.
			_, _ = io.Copy(io.Discard, resp.Body)
			return result, nil
		case line.Progress != nil && to.progress != nil:
			to.progress(*line.Progress)
		case line.Change != nil && to.change != nil:
			if err := to.change(*line.Change); err != nil {
				return result, err
			}
		case line.File != nil && to.file != nil:
			if err := to.file(*line.File); err != nil {
				return result, err
			}
		case line.Read != nil && to.read != nil:
			if err := to.read(*line.Read); err != nil {
				return result, err
			}
		case line.Document != nil && to.document != nil:
			if err := to.document(*line.Document); err != nil {
				return result, err
			}
		case line.Match != nil && to.match != nil:
			if err := to.match(*line.Match); err != nil {
				return result, err
			}
		case line.Watched != nil && to.watched != nil:
			if err := to.watched(*line.Watched); err != nil {
				return result, err
			}
		case line.Ready && to.ready != nil:
			to.ready()
		case line.Data != nil && to.data != nil:
			if _, err := to.data.Write(line.Data); err != nil {
				return result, err
			}
		case line.Event != nil && to.event != nil:
			if err := to.event(*line.Event); err != nil {
				return result, err
			}
		}
	}
}

// cause drops the method and the made-up URL from a client error.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
