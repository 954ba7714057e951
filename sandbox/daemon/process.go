package daemon

import (
	"net"

	"golang.org/x/sys/unix"
)

// processOf is the process at the other end of a connection, by its id here; 0 if it has none.
func processOf(conn net.Conn) int {
	if c, ok := conn.(*limitedConn); ok {
		conn = c.Conn
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}
