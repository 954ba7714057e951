package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/sys/unix"

	"snapfs/cmd/internal/cli"
	"snapfs/internal/holder"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/client"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/dockerplugin"
	"snapfs/sandbox/httpapi"
)

// service is the daemon of one home.
type service struct {
	cli.ServeOptions

	log     *slog.Logger
	logFile *lateLog // nil if the log goes to standard error
	manager manager
	home    *sandbox.Home
	network *daemon.Network               // nil: only the socket is served
	limits  atomic.Pointer[daemon.Limits] // of tokens
	rest    *httpapi.Server
	plugin  *dockerplugin.Plugin // nil: volumes are not served
	access  daemon.Access
	served  bool       // it came to serve
	next    *successor // set before the server ends if a program goes on as the daemon
	after   int        // set likewise if another process does
	before  int        // process whose place this one has taken; 0 for none

	pluginSocket *daemon.ServiceSocket // nil likewise
	pluginCopy   *os.File              // of that, which the keeper has a copy of

	keeper     keeper
	socketCopy *os.File // that the keeper has a copy of; nil for none

	reloading sync.Mutex // held by reload
}

// serve runs the daemon until ctx ends or a client stops it, or becomes the program that replaces it.
func serve(ctx context.Context, o cli.ServeOptions) error {
	if err := standAlone(); err != nil {
		return err
	}
	s := &service{ServeOptions: o}
	err := s.serve(ctx)
	switch {
	case s.after != 0:
		if e := s.keeper.LeaveTo(s.after); e != nil {
			s.log.Warn("leaving the holder", "error", e)
		}
		return err
	case s.next == nil || ctx.Err() != nil:
		if s.served {
			s.leave(s.handsOn(ctx))
		} else if s.before != 0 && err != nil {
			err = fmt.Errorf("%w; the daemon before is started again", err)
		}
		return err
	}
	s.leave(true)
	if err != nil { // the successor takes what is left as after a crash
		s.log.Error("this program did not end well before another one goes on", "error", err)
	}
	return s.next.become(s.log, s.Args)
}

// serve runs the daemon.
func (s *service) serve(ctx context.Context) error {
	o := &s.ServeOptions
	// The kernel and the overlay have applied the umask of the calling program. The daemon's own umask must not change
	// the modes of files.
	unix.Umask(0)
	if err := os.Chdir("/"); err != nil { // do not keep the file system of the working directory busy
		return err
	}
	// os.Getwd looks up what PWD says, also in the program that replaces this one, and the one that follows it: it may be a
	// mount that waits for them.
	if err := os.Unsetenv("PWD"); err != nil {
		return err
	}
	level := slog.LevelInfo
	if o.Verbose {
		level = slog.LevelDebug
	}
	sink := o.Log
	if o.LogPath != "" {
		// A file that was set is another program's to rotate.
		s.logFile = &lateLog{path: o.LogPath, rotate: o.LogPath == filepath.Join(o.Home, api.LogName)}
		sink = io.Writer(s.logFile)
	}
	s.log = slog.New(slog.NewTextHandler(sink, &slog.HandlerOptions{Level: level}))
	s.manager = manager{s.log}

	var err error
	if s.access, err = daemon.ParseAccess(o.SocketGroup, o.Allow); err != nil {
		return err
	}
	raiseFiles()
	if err := s.takeRole(ctx); err != nil {
		return err
	}
	socket, kept, err := s.socket()
	if err != nil {
		return err
	}
	limits, events := limitsOf(o)
	s.limits.Store(tokenLimits(o))
	deaths, lines := s.deaths()
	s.keeper.Starting("opening the home")
	s.home, err = sandbox.Open(ctx, o.Home, sandbox.Options{
		Logger: s.log, MustExist: o.MustExist, Remount: o.Remount && !o.NoRemount, OwnMountpoints: true,
		IdleAfter: o.IdleAfter, Transport: o.Transport, EnableURing: o.EnableURing, Limits: limits, Events: events,
		Keeper: s.keeper, KeepMounts: o.KeepMounts, Deaths: deaths, LastLog: lines,
	})
	if err != nil {
		return err
	}
	s.keeper.Starting("beginning to serve")
	if err := holder.RemoveDeaths(o.Home); err != nil {
		s.log.Warn("the next daemon will tell of a death again", "error", err)
	}
	if s.logFile != nil {
		if err := s.logFile.open(); err != nil {
			return s.notServing(ctx, err)
		}
	}
	if o.Metrics != "" {
		at, stop, err := daemon.Observe(ctx, o.Metrics, s.home)
		if err != nil {
			return s.notServing(ctx, err)
		}
		defer func() {
			if err := stop(); err != nil {
				s.log.Warn("metrics", "error", err)
			}
		}()
		s.log.Info("serving metrics", "address", at.String())
	}
	if s.network, err = s.listenNetwork(ctx); err != nil {
		return s.notServing(ctx, err)
	}
	if err := s.startPlugin(); err != nil {
		_ = errors.Join(s.network.Close(), s.pluginSocket.Close()) // nobody was served
		return s.notServing(ctx, err)
	}
	return s.run(ctx, socket, kept)
}

// notServing closes a home that does not come to be served. Mounts of the daemon before that wait in the holder stay for
// another attempt, unless this process is to end. If this one was to take its place, the holder starts that again.
func (s *service) notServing(ctx context.Context, err error) error {
	stopped := errors.Is(err, errStopped)
	waiting, ends := s.keeper.Waiting() > 0, ctx.Err() != nil || stopped
	replaces := !stopped && (s.before != 0 || s.SocketFD > 0)
	if replaces || waiting && (!ends || s.handsOn(ctx)) {
		s.keepMounts()
	}
	s.served = !replaces && (!waiting || ends) // it takes leave
	return errors.Join(err, s.home.Close())
}

// handsOn reports whether this process ends for another one that goes on with its mounts.
func (s *service) handsOn(ctx context.Context) bool { return s.KeepMounts && cli.Succeeded(ctx) }

// socket is the one that the daemon before has handed on, or that a service manager has made and keeps; nil for none.
func (s *service) socket() (l net.Listener, kept bool, err error) {
	if s.SocketFD > 0 {
		l, err = inherit(s.SocketFD)
		return l, s.SocketKept, err
	}
	l, err = s.manager.socket()
	if l != nil || err != nil {
		return l, l != nil, err
	}
	l, err = s.keptSocket()
	return l, false, err
}

// logPlace says where the log goes, as clients see it.
func (s *service) logPlace() string {
	if s.logFile != nil {
		return s.LogPath
	}
	if isJournal, err := journal.StderrIsJournalStream(); err == nil && isJournal {
		return wire.LogJournal
	}
	return wire.LogStderr
}

// run serves the home, and closes it.
func (s *service) run(ctx context.Context, socket net.Listener, kept bool) error {
	ctx, end := s.withGuards(ctx)
	defer end()
	socket, err := s.listen(socket)
	if err != nil {
		_ = errors.Join(s.network.Close(), s.pluginSocket.Close()) // nobody was served
		return s.notServing(ctx, err)
	}
	defer s.startREST(ctx)()
	served := make(chan error, 1)
	go func() {
		served <- daemon.Serve(ctx, daemon.Options{
			Dir: s.Home, Home: s.home, Version: s.Version, Log: s.logPlace(), Listener: socket, Kept: kept,
			Access: s.access, Network: s.network, Services: s.services(), Socket: s.pluginSocket, Limits: func() daemon.Limits { return *s.limits.Load() },
			Logger: s.log, Reload: s.reload, Stopping: s.manager.stopping, Holder: s.keeper.PID,
			Replace: func(program string, socket *os.File) {
				s.handOver()
				s.manager.reloading()
				s.next = s.successor(program, socket, kept)
				s.next.network = s.handedOn()
			},
			Leave: s.makeRoom, MayLeave: s.mayLeave,
		})
	}()
	if err := waitServing(ctx, s.Home, served); err != nil {
		if s.after != 0 && errors.Is(err, errStopped) { // its successor was that quick
			err = nil
		}
		return s.notServing(ctx, err)
	}
	s.served = true
	s.log.Info("serving", "home", s.Home, "pid", os.Getpid(), "version", s.Version, "nobody", s.keeper.Gap())
	if err := s.keeper.Ready(); err != nil {
		s.log.Warn("the holder is not told that this daemon serves", "error", err)
	}
	s.home.RecordDeaths(ctx)
	if err := s.keeper.Told(); err != nil {
		s.log.Warn("the next daemon will tell of a death again", "error", err)
	}
	defer s.manager.watch(s.home)()
	s.manager.ready()
	s.Ready()
	for {
		select {
		case <-s.Hangup:
			_ = s.reload() // it is logged
		case err := <-served:
			if errors.Is(err, context.Canceled) {
				err = nil
			}
			err = errors.Join(err, s.home.Close())
			if err != nil {
				s.log.Error("ended", "error", err)
			} else {
				s.log.Info("ended")
			}
			return err
		}
	}
}

// reload opens the log anew and takes the limits of the settings as they are now. If these cannot be read, the limits
// stay. It is safe for concurrent use.
func (s *service) reload() error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	s.manager.reloading()
	defer s.manager.ready()
	var logErr error
	if s.logFile != nil {
		logErr = s.logFile.reopen()
	}
	o, err := s.Settings()
	if err == nil {
		s.home.SetLimits(limitsOf(o))
		s.limits.Store(tokenLimits(o))
	}
	if err = errors.Join(logErr, s.network.Reload(), err); err != nil {
		s.log.Error("reloading", "error", err)
		return err
	}
	s.log.Info("reloaded", "max-snapshots", o.MaxSnapshots, "max-bytes", o.MaxBytes, "max-size", o.MaxSize, "events-keep", o.EventsKeep,
		"events-age", o.EventsAge)
	return nil
}

// limitsOf are the settings that apply at once when they are read again.
func limitsOf(o *cli.ServeOptions) (sandbox.Limits, sandbox.EventLimits) {
	return sandbox.Limits{Snapshots: o.MaxSnapshots, Workspaces: o.MaxWorkspaces, Bytes: o.MaxBytes, Home: o.MaxSize},
		sandbox.EventLimits{Keep: o.EventsKeep, Age: o.EventsAge}
}

// withGuards returns a context that ends with ctx, after the home has learnt whether mountpoints stay guarded: after
// SIGTERM another daemon is expected, or the machine goes down. After SIGUSR2 mounts stay, too.
func (s *service) withGuards(ctx context.Context) (_ context.Context, end func()) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if cli.Terminated(ctx) || cli.Succeeded(ctx) {
			s.home.KeepGuards()
		}
		if s.handsOn(ctx) {
			s.keepMounts()
		}
		cancel(context.Cause(ctx))
	})
	return inner, func() {
		stop()
		cancel(nil)
	}
}

// errStopped says that a client has ended the daemon before it was known to serve.
var errStopped = errors.New("the daemon was stopped while starting")

// waitServing returns when the socket answers, or with the error that ended Serve before.
func waitServing(ctx context.Context, home string, served chan error) error {
	for {
		select {
		case err := <-served:
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				err = errStopped
			}
			return err
		case <-time.After(5 * time.Millisecond):
		}
		dialCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		c, err := client.Dial(dialCtx, home)
		cancel()
		if err == nil {
			return c.Close()
		}
	}
}
