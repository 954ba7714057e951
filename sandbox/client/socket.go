package client

import (
	"context"
	"net"

	"snapfs/sandbox/api/wire"
)

// connect connects to the socket of a home.
func connect(ctx context.Context, dir string) (net.Conn, error) {
	var conn net.Conn
	err := wire.WithSocket(dir, func(path string) error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
		return err
	})
	return conn, err
}
