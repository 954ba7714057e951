package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// shortPath runs fn with a path of the socket that fits into a sockaddr_un's 108 bytes, however long the home's is.
func shortPath(dir string, fn func(path string) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(fn(fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), sandbox.SocketName)), d.Close())
}

// listen makes the socket of a home. The caller holds the home, so a socket that is there already belongs to nobody.
func listen(dir string) (*net.UnixListener, error) {
	var l *net.UnixListener
	err := shortPath(dir, func(path string) error {
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
		return nil, unavailable("making the socket of %s: %w", dir, err)
	}
	return l, nil
}

// connect connects to the socket of a home.
func connect(ctx context.Context, dir string) (net.Conn, error) {
	var conn net.Conn
	err := shortPath(dir, func(path string) error {
		var err error
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
		return err
	})
	return conn, err
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
