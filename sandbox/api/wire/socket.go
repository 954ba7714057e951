package wire

import (
	"errors"
	"fmt"
	"os"

	"snapfs/sandbox/api"
)

// WithSocket runs fn with a path of the socket of the home in dir that fits into a sockaddr_un's 108 bytes, however
// long the home's is.
func WithSocket(dir string, fn func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(fn(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), api.SocketName)), d.Close())
}
