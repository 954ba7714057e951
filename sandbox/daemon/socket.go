package daemon

import (
	"errors"
	"net"
	"os"

	"snapfs/sandbox/api/wire"
)

// Listen makes the socket of a home. The caller holds the home, so a socket that is there already belongs to nobody.
func Listen(dir string, access Access) (*net.UnixListener, error) {
	var l *net.UnixListener
	err := wire.WithSocket(dir, func(path string) error {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		var err error
		if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
			return err
		}
		l.SetUnlinkOnClose(false) // the short path is gone by then
		if err := access.open(dir, path); err != nil {
			return errors.Join(err, l.Close())
		}
		return nil
	})
	if err != nil {
		return nil, wire.Unavailable("making the socket of %s: %w", dir, err)
	}
	return l, nil
}
