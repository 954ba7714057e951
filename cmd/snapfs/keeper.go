package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/cmd/internal/cli"
	"snapfs/internal/holder"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/daemon"
)

// keeper has what the successor of this daemon takes over, in the holder of the home or in the service manager.
type keeper interface {
	sandbox.Keeper

	// Ready tells that this daemon serves.
	Ready() error
	// Told tells that Deaths are noted: the next daemon is told of later ones only.
	Told() error
	// HandOver keeps what the successor takes over until Leave, also if the holder dies after the home is closed.
	HandOver() error
	// Leave ends the role of this process: for a successor, or with all that is kept.
	Leave(successor bool) error
	// LeaveTo ends the role of this process for another one, which waits for it.
	LeaveTo(pid int) error
	// Deaths are the daemons that have died since one served.
	Deaths() []sandbox.Death
	// Gap is for how long nobody has served the home.
	Gap() time.Duration
	// Waiting counts what the daemon before has left, other than what belongs to the home.
	Waiting() int
	// Starting tells what this daemon does before it serves; without progress for long it is ended.
	Starting(what string)
	// PID is the process of the holder; 0 for none.
	PID() int
}

// socketName is the name by which the daemon's socket is kept.
const socketName = holder.HomePrefix + "socket"

// join takes the role of the home's daemon; with wait when the daemon that has it leaves.
func (s *service) join(ctx context.Context, wait bool) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	c, err := holder.Join(ctx, holder.Options{
		Home: s.Home, Log: s.log, Programs: append(cli.ClientsOf(program), "/proc/self/exe"),
		Start: holder.Start{Program: program, Args: withoutSocket(s.Args), Env: unmanaged(os.Environ()), Managed: os.Getenv("NOTIFY_SOCKET") != ""},
	}, wait)
	switch {
	case errors.Is(err, holder.ErrConflict):
		return fmt.Errorf("%w: home %s: %w: stop it first, take its place with 'serve --replace', or use another home",
			sandbox.ErrConflict, s.Home, err)
	case errors.Is(err, holder.ErrGone), errors.Is(err, holder.ErrRefused):
		return fmt.Errorf("%w: home %s: %w", sandbox.ErrUnavailable, s.Home, err)
	case err != nil:
		return fmt.Errorf("home %s: %w", s.Home, err)
	}
	s.keeper = c
	return nil
}

// unmanaged drops what a service manager has told this process alone. See sd_notify(3), sd_listen_fds(3) and systemd.exec(5).
func unmanaged(env []string) []string {
	own := []string{
		"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "FDSTORE", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC",
		"JOURNAL_STREAM", "INVOCATION_ID", "SYSTEMD_EXEC_PID", "MAINPID", "MANAGERPID", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE",
	}
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(own, name)
	})
}

// deaths are the daemons that have died since one served, and what the latest of them has logged last.
func (s *service) deaths() (deaths []sandbox.Death, lines []string) {
	left, err := holder.ReadDeaths(s.Home)
	if err != nil {
		s.log.Warn("how the daemon before ended is not known", "error", err)
	}
	deaths = append(left, s.keeper.Deaths()...)
	if len(deaths) == 0 {
		return nil, nil
	}
	path := s.LogPath
	if path == "" {
		path = filepath.Join(s.Home, api.LogName)
	}
	// The file may lie in a mount that this daemon has yet to serve.
	found := make(chan []string, 1)
	go func() { found <- lastLines(path) }() // ends with the answer at the latest
	select {
	case lines = <-found:
	case <-time.After(logWait):
		s.log.Warn("what the daemon before has logged last is not known: its log does not answer", "path", path)
	}
	return deaths, lines
}

// maxLastBytes is how much of a log is read for its last lines: what the runtime prints of all goroutines comes after why.
const maxLastBytes = 64 << 10

// logWait is how long the log of the daemon before may take to be read.
const logWait = 300 * time.Millisecond

// lastLines are the last lines of a log; none if there is none.
func lastLines(path string) []string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return nil
	}
	from := max(0, fi.Size()-maxLastBytes)
	text, err := io.ReadAll(io.NewSectionReader(f, from, maxLastBytes))
	if err != nil {
		return nil
	}
	if from > 0 { // a part of a line
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	var lines []string
	for line := range bytes.Lines(text) {
		lines = append(lines, string(bytes.TrimSuffix(line, []byte("\n"))))
	}
	return lines
}

func (s *service) socketPlace() (daemon.Place, error) {
	return daemon.PlaceOf(filepath.Join(s.Home, api.SocketName))
}

// keptSocket is the socket of the daemon before, in which clients may wait; nil if there is none, or its path leads to
// another one.
func (s *service) keptSocket() (net.Listener, error) {
	now, err := s.socketPlace()
	if err != nil {
		return nil, nil // there is none
	}
	return s.keptListener(socketName, now)
}

// keptListener is a socket of the daemon before that is kept by a name; nil if there is none, or it is not the one at a
// place.
func (s *service) keptListener(name string, at daemon.Place) (net.Listener, error) {
	k, err := s.keeper.Get(name)
	if err != nil || len(k.Files) != 1 {
		return nil, err
	}
	defer func() { _ = k.Files[0].Close() }() // the listener has its own
	var was daemon.Place
	if json.Unmarshal(k.Data, &was) != nil || was != at {
		return nil, nil
	}
	l, err := net.FileListener(k.Files[0])
	if err != nil {
		return nil, fmt.Errorf("the socket of the daemon before: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	return l, listenAgain(l)
}

// keepListener has the next daemon get a socket.
func (s *service) keepListener(name string, at daemon.Place, f *os.File) error {
	data, err := json.Marshal(at)
	if err != nil {
		return err
	}
	return s.keeper.Keep(name, data, f)
}

// listen makes the socket of the home unless there is one, and has the next daemon get it.
func (s *service) listen(socket net.Listener) (net.Listener, error) {
	if socket == nil {
		l, err := daemon.Listen(s.Home, s.access)
		if err != nil {
			return nil, err
		}
		socket = l
	}
	u, ok := socket.(*net.UnixListener)
	if !ok {
		return socket, nil
	}
	err := error(nil)
	if s.socketCopy, err = u.File(); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	at, err := s.socketPlace()
	if err == nil {
		err = s.keepListener(socketName, at, s.socketCopy)
	}
	if err != nil {
		s.log.Warn("clients are refused while a daemon that has died is started again", "error", err)
	}
	return socket, nil
}

// leave ends the role of the daemon.
func (s *service) leave(successor bool) {
	if s.keeper == nil {
		return
	}
	if err := s.keeper.Leave(successor); err != nil {
		s.log.Warn("leaving the holder", "error", err)
	}
}
