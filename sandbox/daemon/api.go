package daemon

import (
	"context"
	"errors"

	"snapfs/sandbox"
)

// Serve serves home's API on home/socket until ctx ends or Stop is called.
func Serve(ctx context.Context, dir string, home *sandbox.Home) error { return errors.ErrUnsupported }

// Client is a connection to a daemon.
type Client struct{ sandbox.API }

// Dial connects to the daemon of a home; sandbox.ErrUnavailable if there is none.
func Dial(ctx context.Context, dir string) (*Client, error) { return nil, errors.ErrUnsupported }

// Stop asks the daemon to unmount and end, and waits for it.
func (c *Client) Stop(ctx context.Context) error { return errors.ErrUnsupported }

// Info describes a running daemon.
type Info struct {
	PID     int    `json:"pid"`
	Home    string `json:"home"`
	Version string `json:"version"`
	Mounts  int    `json:"mounts"`
}

// Info asks the daemon about itself.
func (c *Client) Info(ctx context.Context) (Info, error) { return Info{}, errors.ErrUnsupported }
