package wire

import (
	"errors"
	"fmt"
	"os"

	"snapfs/sandbox/api"
)

// oPath is O_PATH of open(2), the same number wherever Go runs: to have the right to search a directory is enough.
const oPath = 0x200000

// WithSocket runs fn with a path of the socket of the home in dir that fits into a sockaddr_un's 108 bytes, however
// long the home's is.
func WithSocket(dir string, fn func(path string) error) error {
	d, err := os.OpenFile(dir, oPath, 0)
	if err != nil {
		return err
	}
	return errors.Join(fn(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), api.SocketName)), d.Close())
}
