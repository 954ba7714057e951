package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/holder"
	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/client"
)

const (
	// leaveWait bounds how long a daemon that is sure to leave may take.
	leaveWait = time.Minute
	// otherWait bounds how long the role may be taken by another process once that has ended which had it.
	otherWait = 3 * time.Second
	// joinAgain is when a holder is asked again that is not there, as one that was killed.
	joinAgain = 5 * time.Millisecond
)

// handOver has a program that goes on as the daemon go on with the mounts.
func (s *service) handOver() {
	s.home.KeepGuards() // mounts are made again at once
	s.keepMounts()
}

// keepMounts has another process go on with the mounts once the home is closed.
func (s *service) keepMounts() {
	s.home.KeepMounts()
	if err := s.keeper.HandOver(); err != nil {
		s.log.Warn("mounts end if the holder dies while they are handed over", "error", err)
	}
}

// makeRoom notes that another process goes on as the daemon.
func (s *service) makeRoom(successor int) {
	s.log.Info("another process takes the place of this one", "pid", successor)
	s.handOver()
	s.after = successor
}

// mayLeave gives the reason why no other process may take the place of this one.
func (s *service) mayLeave() error {
	const inPlace = "'snapfs upgrade' has another program go on in that process"
	switch {
	case os.Getenv("NOTIFY_SOCKET") != "":
		return fmt.Errorf("%w: process %d, which serves %s, is a service manager's: %s", sandbox.ErrConflict, os.Getpid(), s.Home, inPlace)
	case os.Getpid() == 1:
		return fmt.Errorf("%w: the first process of a container or namespace serves %s: %s", sandbox.ErrConflict, s.Home, inPlace)
	case s.keeper.PID() == 0:
		return wire.Unavailable("nothing keeps the mounts of %s, see the log of its daemon: %s", s.Home, inPlace)
	}
	return nil
}

// takeRole takes the role of the home's daemon, if that is asked for from the one that has it.
func (s *service) takeRole(ctx context.Context) error {
	if !s.Replace {
		return s.join(ctx, false)
	}
	c, err := s.askedInTime(ctx)
	if c == nil {
		if err != nil {
			return err
		}
		return s.join(ctx, false) // nobody serves
	}
	defer func() { _ = c.Close() }() // the other end is gone as a rule
	pid := c.Process()
	if err := s.mayReplace(pid); err != nil {
		return err
	}
	if err := s.mayJoin(ctx); err != nil {
		return err
	}
	s.log.Info("asks the daemon to leave", "pid", pid, "version", c.DaemonVersion())
	return s.takePlace(ctx, c, pid)
}

// asked connects to the daemon that is to leave; nil if there is none.
func (s *service) asked(ctx context.Context) (*client.Client, error) {
	c, err := client.DialAs(ctx, s.Home, s.Version)
	for _, none := range []error{unix.ENOENT, unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, io.EOF} {
		if errors.Is(err, none) {
			return nil, nil
		}
	}
	return c, err
}

// askedInTime is asked, again while the process of the connection has ended: another one is about to serve, or has answered
// what came when that one listened.
func (s *service) askedInTime(ctx context.Context) (*client.Client, error) {
	for begin := time.Now(); ; time.Sleep(joinAgain) {
		c, err := s.asked(ctx)
		if c == nil || c.Process() <= 0 || !hasEnded(c.Process()) || time.Since(begin) > otherWait {
			return c, err
		}
		_ = c.Close() // whoever it was
	}
}

// hasEnded reports whether a process has ended.
func hasEnded(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer func() { _ = unix.Close(fd) }()
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

// mayReplace refuses what would go wrong when the daemon before has left.
func (s *service) mayReplace(pid int) error {
	var st syscall.Stat_t
	if err := syscall.Stat(fmt.Sprintf("/proc/%d", pid), &st); pid <= 0 || err != nil {
		return fmt.Errorf("%w: the process that serves %s is not to be seen here: it is in another pid namespace, or ends",
			sandbox.ErrUnavailable, s.Home)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: home %s is served by uid %d: replace its daemon as that user", sandbox.ErrRefused, s.Home, st.Uid)
	}
	if err := sandbox.MayOpen(s.Home); err != nil {
		return err
	}
	if s.logFile != nil {
		return s.logFile.test()
	}
	return nil
}

// mayJoin refuses to take the place of a daemon whose holder does not understand this program: it could not go on with
// anything.
func (s *service) mayJoin(ctx context.Context) error {
	if _, err := holder.Ask(ctx, s.Home); errors.Is(err, holder.ErrRefused) {
		return fmt.Errorf("%w: home %s: %w: stop its daemon with the command that was installed with it",
			sandbox.ErrUnavailable, s.Home, err)
	}
	return nil
}

// takePlace has the daemon of a process leave, and takes the role that it has. If that daemon dies meanwhile, the role is
// taken as after any death.
func (s *service) takePlace(ctx context.Context, c *client.Client, pid int) error {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	joined := make(chan error, 1)
	go func() { joined <- s.joinAfter(waiting, pid) }()
	left := make(chan error, 1)
	go func() { left <- c.StopWith(waiting, wire.StopRequest{UnlessBusy: !s.Force, Successor: true}, nil) }()
	select {
	case err := <-joined: // it has died, or has left before its answer came
		s.before = pid
		return err
	case err := <-left:
		if refused := err != nil && (errors.As(err, new(*wire.Error)) || errors.As(err, new(*wire.VersionError)) || ctx.Err() != nil); refused {
			cancel()
			if <-joined != nil {
				return err
			}
			s.before = pid // it has died just now
			return nil
		}
	}
	s.before = pid
	end := processEnd(waiting, pid)
	late := time.NewTimer(leaveWait)
	defer late.Stop()
	for {
		select {
		case err := <-joined:
			return err
		case <-end: // the role is free, or another process has it
			end = nil
			late.Reset(otherWait)
		case <-late.C:
			cancel()
			if err := <-joined; err == nil || ctx.Err() != nil {
				return err
			}
			s.before = 0 // the one that serves goes on
			if end == nil {
				return fmt.Errorf("%w: another process has taken the place of process %d, which served %s", sandbox.ErrConflict, pid, s.Home)
			}
			return fmt.Errorf("%w: process %d, which serves %s, does not leave", sandbox.ErrUnavailable, pid, s.Home)
		}
	}
}

// processEnd is closed when a process has ended, or ctx.
func processEnd(ctx context.Context, pid int) <-chan struct{} {
	end := make(chan struct{})
	go func() {
		defer close(end)
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return
		}
		defer func() { _ = unix.Close(fd) }()
		for n := 0; n == 0 && ctx.Err() == nil; {
			n, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		}
	}()
	return end
}

// joinAfter waits for the role of the daemon at the holder of the home. If there is none, it waits for another one as long
// as the process lives that serves the home.
func (s *service) joinAfter(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("%w: process %d, which serves %s: %w", sandbox.ErrUnavailable, pid, s.Home, err)
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		ended := n > 0
		if err := s.join(ctx, true); err != nil {
			return err
		}
		if ended || s.keeper.PID() != 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(joinAgain):
		}
	}
}
