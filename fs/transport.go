package fs

import (
	"fmt"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// handler answers one request: in holds the request, out has room for the largest answer; the result is the length
// of the answer, 0 for none. It is go-fuse's ProtocolServer.
type handler interface {
	HandleRequest(in, out [][]byte) (int, fuse.Status)
}

// transport carries requests of one connection to a handler.
type transport interface {
	// name is dev or uring.
	name() string
	// start begins to serve and returns at once. done is called when the connection has ended and no request runs.
	start(h handler, done func())
	// notify sends a message that answers no request. It may wait for the kernel, which may wait for answers.
	notify(b []byte) error
	// shut drops the device, which ends the connection.
	shut()
}

// chooseTransport says which transport a mount gets.
func chooseTransport(want string) (string, error) {
	switch want {
	case "", "auto", "dev":
		return "dev", nil
	}
	return "", fmt.Errorf("transport %q: %w", want, ErrNoTransport)
}
