package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/cmd/internal/cli"
)

// successor is the program that goes on as the daemon, in this process: what started it sees no change, and descriptors
// can be handed on. The socket is; connections of mounts are in the holder if it keeps them, and else everything is unmounted before.
type successor struct {
	program string
	copied  *os.File // in memory, if a mount must answer for it; else nil
	socket  *os.File
	kept    bool                // the path of the socket is a service manager's
	network map[string]*os.File // listeners of the network, by their addresses
}

// successor is a program that is to go on. It is read now if that needs a mount, which nobody serves later.
func (s *service) successor(program string, socket *os.File, kept bool) *successor {
	copied, err := standingAlone(program)
	if err != nil {
		s.log.Error("the program that is to replace this one cannot be copied: this one goes on", "program", program, "error", err)
		program = "/proc/self/exe"
	}
	return &successor{program: program, copied: copied, socket: socket, kept: kept}
}

// become runs the program in the place of this one, with the same arguments, in the directory /. It returns only if
// neither it nor this one can be run again.
func (s *successor) become(log *slog.Logger, args []string) error {
	// Until the program listens to it, SIGHUP would end the process.
	signal.Ignore(unix.SIGHUP)
	fd := int(s.socket.Fd())
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("handing on the socket: %w", err)
	}
	args = append(withoutSocket(args), fmt.Sprintf("--%s=%d", cli.SocketFDFlag, fd),
		fmt.Sprintf("--%s=%t", cli.SocketKeptFlag, s.kept))
	for address, f := range s.network {
		fd := f.Fd()
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("handing on the listener at %s: %w", address, err)
		}
		args = append(args, fmt.Sprintf("--%s=%s=%d", cli.ListenFDFlag, address, fd))
	}
	log.Info("replacing this program", "by", s.program)
	err := error(nil)
	if s.copied != nil {
		err = execFile(s.copied, args)
	} else {
		err = unix.Exec(s.program, args, os.Environ())
	}
	log.Error("the program that was to replace this one cannot be run: this one goes on", "program", s.program,
		"error", err)
	return fmt.Errorf("going on: %w", unix.Exec("/proc/self/exe", args, os.Environ()))
}

// withoutSocket drops what an earlier successor was told.
func withoutSocket(args []string) []string {
	var rest []string
	for _, arg := range args {
		handed := slices.ContainsFunc([]string{cli.SocketFDFlag, cli.SocketKeptFlag, cli.ListenFDFlag},
			func(name string) bool { return strings.HasPrefix(arg, "--"+name+"=") })
		if !handed {
			rest = append(rest, arg)
		}
	}
	return rest
}

// inherit is the listener of a socket that was handed on.
func inherit(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "socket")
	l, err := net.FileListener(f) // has a descriptor of its own
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("the socket that was handed on: %w", err)
	}
	return l, nil
}
