package daemon

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api/wire"
)

// listen makes the socket of a home. The caller holds the home, so a socket that is there already belongs to nobody.
func listen(dir string) (*net.UnixListener, error) {
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
		if err := os.Chmod(path, 0o600); err != nil {
			return errors.Join(err, l.Close())
		}
		return nil
	})
	if err != nil {
		return nil, wire.Unavailable("making the socket of %s: %w", dir, err)
	}
	return l, nil
}

// mayConnect reports whether the process at the other end runs as root or as this process's user.
func mayConnect(conn net.Conn) bool {
	if c, ok := conn.(*limitedConn); ok {
		conn = c.Conn
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return false
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return false
	}
	return cred.Uid == 0 || int(cred.Uid) == os.Geteuid()
}
