package client

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"snapfs/internal/processes"
	"snapfs/sandbox/api/wire"
)

// ErrStopped is for a daemon that was stopped by a signal, is in a debugger, or in a control group that is frozen: it
// answers when it goes on.
var ErrStopped = errors.New("the daemon is stopped")

const (
	// stopWait is how long a daemon may take to answer before it is looked at whether it is stopped.
	stopWait = 300 * time.Millisecond
	// stopAgain is when it is looked at again.
	stopAgain = 500 * time.Millisecond
)

// listener is the process that made the socket at the other end, 0 if it cannot be told.
func listener(conn net.Conn) int {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) { // an error leaves 0
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// infoUnlessStopped is Info, but does not wait for a daemon that is stopped.
func (c *Client) infoUnlessStopped(ctx context.Context) (info wire.Info, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan struct{})
	go func() { // ends with ctx
		defer close(answered)
		info, err = c.Info(ctx)
	}()
	for wait := stopWait; ; wait = stopAgain {
		timer := time.NewTimer(wait)
		select {
		case <-answered:
			timer.Stop()
			return info, err
		case <-timer.C:
		}
		pid := int(c.conn.peer.Load())
		if why := processes.StandsStill(pid); why != "" {
			cancel()
			<-answered
			return info, wire.Unavailable("%w: process %d of %s%s lets it go on", ErrStopped, pid, c.dir, why)
		}
	}
}
