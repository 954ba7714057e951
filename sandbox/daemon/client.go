package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"time"

	"snapfs/sandbox"
)

// dialWait bounds how long a daemon may take to answer when it is first met.
const dialWait = 5 * time.Second

// Client is a connection to a daemon. Safe for concurrent use.
type Client struct {
	dir  string
	http *http.Client
}

var _ sandbox.API = (*Client)(nil)

// Dial connects to the daemon of the home in dir; sandbox.ErrUnavailable if there is none that answers.
func Dial(ctx context.Context, dir string) (*Client, error) {
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return connect(ctx, dir) },
		DisableCompression: true,
		MaxIdleConns:       4,
		IdleConnTimeout:    idleWait / 3, // long before the daemon does
	}
	c := &Client{dir: dir, http: &http.Client{Transport: transport}}
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	if _, err := c.Info(ctx); err != nil {
		transport.CloseIdleConnections()
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, unavailable("the daemon of %s does not answer", dir)
		}
		return nil, err
	}
	return c, nil
}

// Close gives up the connection; the daemon goes on.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Info asks the daemon about itself.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return call[Info](ctx, c, callInfo, none{}, sink{})
}

// Stop asks the daemon to unmount everything and end, and waits until its home is free. Its error is that of closing the home.
func (c *Client) Stop(ctx context.Context) error {
	_, err := call[none](ctx, c, callStop, none{}, sink{})
	c.http.CloseIdleConnections()
	return err
}

// sink takes the lines of a response that come before the result.
type sink struct {
	progress func(sandbox.Progress)
	change   func(sandbox.Change) error
	event    func(sandbox.Event) error
}

// spoiled finds what the JSON encoder writes for bytes that are not UTF-8; a genuine U+FFFD it writes as it is.
var spoiled = regexp.MustCompile(`(^|[^\\])(\\\\)*\\ufffd`)

// call makes one call. When ctx ends, a lasting one is cancelled in the daemon, whose last word counts: the result if it came too late.
func call[Res any](ctx context.Context, c *Client, name string, request any, to sink) (result Res, err error) {
	if err := ctx.Err(); err != nil {
		return result, err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return result, fmt.Errorf("%w: request: %w", sandbox.ErrInvalid, err)
	}
	if spoiled.Match(body) {
		return result, fmt.Errorf("%w: names and paths in a call to a daemon must be UTF-8", sandbox.ErrInvalid)
	}
	x := c.newExchange(ctx, name)
	defer x.end() // an error of a change function ends the call in the daemon, too
	req, err := http.NewRequestWithContext(x.ctx, http.MethodPost, "http://snapfs"+route(name), bytes.NewReader(body))
	if err != nil {
		return result, err
	}
	if x.id != "" {
		req.Header.Set(callHeader, x.id)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if x.ctx.Err() != nil {
			return result, x.cutOff(c.dir)
		}
		return result, unavailable("no daemon serves %s: %w", c.dir, cause(err))
	}
	defer func() { _ = resp.Body.Close() }() // everything was read, or nothing more is wanted
	if resp.StatusCode != http.StatusOK {
		return result, unavailable("the daemon of %s does not know the call %s: another version?", c.dir, name)
	}
	lines := json.NewDecoder(resp.Body)
	for {
		var line struct {
			Progress *sandbox.Progress `json:"progress"`
			Change   *sandbox.Change   `json:"change"`
			Event    *sandbox.Event    `json:"event"`
			Result   json.RawMessage   `json:"result"`
			Error    *wireError        `json:"error"`
		}
		err := lines.Decode(&line)
		switch {
		case err != nil && x.ctx.Err() != nil:
			return result, x.cutOff(c.dir)
		case err != nil:
			return result, unavailable("the daemon of %s went away during the call: %w", c.dir, cause(err))
		case line.Error != nil && ctx.Err() != nil && errors.Is(line.Error, context.Canceled):
			return result, ctx.Err()
		case line.Error != nil:
			return result, line.Error
		case line.Result != nil:
			if err := json.Unmarshal(line.Result, &result); err != nil {
				return result, fmt.Errorf("response of the daemon: %w", err)
			}
			// The end of the body lets the connection be used again.
			_, _ = io.Copy(io.Discard, resp.Body)
			return result, nil
		case line.Progress != nil && to.progress != nil:
			to.progress(*line.Progress)
		case line.Change != nil && to.change != nil:
			if err := to.change(*line.Change); err != nil {
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
