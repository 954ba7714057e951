package holder

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// begin starts a holder, and takes the role of the daemon there. The holder before is one that it is to follow; nil for
// none. The caller holds the lock of the home.
func (c *Client) begin(before *os.File) (*wireConn, error) {
	home, err := os.OpenFile(c.Home, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = home.Close() }()
	fd, err := listen(int(home.Fd()))
	if err != nil {
		return nil, fmt.Errorf("socket of the holder: %w", err)
	}
	listener := os.NewFile(uintptr(fd), "listener of the holder")
	defer func() { _ = listener.Close() }() // the holder's stays
	var errs error
	for _, program := range c.Programs {
		conn, err := c.spawn(program, home, listener, before)
		if err == nil {
			return conn, nil
		}
		errs = errors.Join(errs, fmt.Errorf("%s: %w", program, err))
	}
	return nil, fmt.Errorf("starting a holder: %w", errs)
}

// listen makes the socket of the holder in a home.
func listen(home int) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", home, SocketName)
	err = os.Remove(path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	// The mode of the socket that bind makes is that of the descriptor.
	if err == nil {
		err = unix.Fchmod(fd, 0o600)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// spawn starts a program as the holder. It fails if that does not answer as one.
func (c *Client) spawn(program string, home, listener, before *os.File) (*wireConn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs, ours := os.NewFile(uintptr(pair[0]), "holder"), os.NewFile(uintptr(pair[1]), "daemon")
	defer func() { _ = ours.Close() }() // FileConn has its own
	cmd := &exec.Cmd{Path: program, Args: []string{Name, c.Home}, Dir: "/", SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	cmd.ExtraFiles = []*os.File{listener, theirs}
	if before != nil {
		cmd.Args = append(cmd.Args, followArg)
		cmd.ExtraFiles = append(cmd.ExtraFiles, before)
	}
	// It has one goroutine that does something.
	cmd.Env = append(ownVariables(os.Environ()), "GOMAXPROCS=1", "GOMEMLIMIT=off", "GODEBUG=")
	err = cmd.Start()
	_ = theirs.Close() // with the holder's own copy the connection ends: nobody waits for one that has ended
	if err != nil {
		return nil, err
	}
	conn, err := c.greet(ours, home)
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(err, cmd.Wait())
	}
	go func() { _ = cmd.Wait() }() // however it ends: its connection tells
	return conn, nil
}

// ownVariables are those by which processes of a test or a service are known.
func ownVariables(env []string) []string {
	var own []string
	for _, v := range env {
		if strings.HasPrefix(v, "SNAPFS_") {
			own = append(own, v)
		}
	}
	return own
}

// greet says hello to a holder that was just started, and takes the role.
func (c *Client) greet(ours, home *os.File) (*wireConn, error) {
	s, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	socket, ok := s.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(ErrGone, s.Close())
	}
	conn, err := newWireConn(context.Background(), socket, int(home.Fd()), 0)
	if err != nil {
		return nil, err
	}
	if _, err := conn.serve(context.Background(), c.Start, false); err != nil {
		return nil, errors.Join(err, conn.close())
	}
	return conn, nil
}
