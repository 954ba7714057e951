package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// manager is the service manager, if there is one that speaks the protocol of systemd: it may have made the socket, and
// is told how the daemon fares. Safe for concurrent use.
type manager struct {
	log *slog.Logger
}

// socket is the listener that the manager has made, nil if it has made none.
func (manager) socket() (net.Listener, error) {
	given, err := activation.Listeners()
	if err != nil {
		return nil, err
	}
	switch {
	case len(given) == 0:
		return nil, nil
	case len(given) > 1:
		return nil, errors.New("the service manager passes more than one socket: set one ListenStream")
	case given[0] == nil || given[0].Addr().Network() != "unix":
		return nil, errors.New("the service manager passes what is no unix stream socket: set ListenStream to a path")
	}
	return given[0], listenAgain(given[0])
}

// listenAgain has the kernel tell clients the credentials of this process (SO_PEERCRED). Until then they are those of the
// manager, which has called listen(2), and clients cannot tell that the daemon is stopped.
func listenAgain(l net.Listener) error {
	sc, ok := l.(syscall.Conn)
	if !ok {
		return fmt.Errorf("a listener of type %T has no descriptor", l)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	listenErr := error(nil)
	err = raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), unix.SOMAXCONN) })
	return errors.Join(err, listenErr)
}

// ready tells that the daemon serves, or has reloaded.
func (m manager) ready() { m.tell(daemon.SdNotifyReady) }

func (m manager) stopping() { m.tell(daemon.SdNotifyStopping) }

// reloading tells that the daemon reads its settings, with the time by which the manager knows which request that is.
func (m manager) reloading() {
	m.tell(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
}

func (m manager) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		m.log.Warn("telling the service manager", "error", err)
	}
}

// watch tells the manager regularly that the home answers, if it wants to know, until stop is called.
func (m manager) watch(home *sandbox.Home) (stop func()) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("the service manager's watchdog", "error", err)
	}
	if err != nil || interval <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(max(interval/3, time.Millisecond))
		defer tick.Stop()
		for ctx.Err() == nil {
			// These take the locks that every call takes.
			_, _ = home.Mounts(), home.Background()
			m.tell(daemon.SdNotifyWatchdog)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); running.Wait() }
}
