package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/client"
	"snapfs/sandbox/daemon"
)

func (a *app) serveCommand() *cobra.Command {
	var background, mustExist bool
	var metrics string
	opts := sandbox.Options{Transport: "auto", IdleAfter: 10 * time.Minute}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "be the daemon of the home, in the foreground",
		Long: `Opens the home, makes it if it is missing, and serves it until SIGTERM, SIGINT or 'snapfs stop'. Then all
workspaces are unmounted; what was not stored yet is stored after the next start. Other verbs start a daemon
by themselves: run it by hand to see its log, under a service manager, or as the first process of a container, where it
also reaps orphans.

A home has one daemon: a second one is refused.

Requests come over io_uring where the kernel has that switched on (/sys/module/fuse/parameters/enable_uring is Y), else
over /dev/fuse; 'snapfs show' tells. --enable-fuse-uring writes Y there, which concerns all FUSE file systems of the
system that know io_uring, and says so in the log. Nothing else switches it.`,
		Example: "  snapfs serve --home /srv/ws\n  podman run --device /dev/fuse --cap-add SYS_ADMIN IMAGE snapfs serve",
		Args:    cobra.NoArgs,
		Annotations: map[string]string{
			"exits": exitHelp(exitConflict, exitCorrupt, exitUnavailable),
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			var report *os.File
			if background {
				report = os.NewFile(readyFD, "ready")
			}
			if err := checkTransport(opts.Transport); err != nil {
				return err
			}
			opts.MustExist = mustExist
			return a.serve(cmd.Context(), report, metrics, opts)
		},
	}
	cmd.Flags().StringVar(&opts.Transport, "transport", opts.Transport, "how requests travel where a mount does not say: auto, uring or dev")
	cmd.Flags().BoolVar(&opts.EnableURing, "enable-fuse-uring", false,
		"switch the kernel's FUSE over io_uring on, for the whole system and until the next boot")
	cmd.Flags().DurationVar(&opts.IdleAfter, "idle-after", opts.IdleAfter,
		"merge layers, collect garbage and pack cold data anew after so long without a call or request; 0: never")
	cmd.Flags().BoolVar(&opts.Remount, "remount", false, "mount again what was mounted when the last daemon ended")
	cmd.Flags().IntVar(&opts.Limits.Snapshots, "max-snapshots", envInt("SNAPFS_MAX_SNAPSHOTS"),
		"a session may have `N` snapshots; 0 is 100,000, below 0 any number (SNAPFS_MAX_SNAPSHOTS)")
	cmd.Flags().Int64Var(&opts.Limits.Bytes, "max-bytes", int64(envInt("SNAPFS_MAX_BYTES")),
		"a session whose snapshots' stored images have `N` bytes in all makes no more; 0 is any (SNAPFS_MAX_BYTES)")
	cmd.Flags().StringVar(&metrics, "metrics", "", "serve Prometheus metrics and Go profiles at local `ADDR`, as 127.0.0.1:9180")
	cmd.Flags().BoolVar(&background, "background", false, "log to the home and report on descriptor 3")
	cmd.Flags().BoolVar(&mustExist, "must-exist", false, "refuse to make a home that is not there")
	_ = cmd.Flags().MarkHidden("background") // fails for an unknown flag only
	_ = cmd.Flags().MarkHidden("must-exist")
	return cmd
}

// envInt is a number from the environment; 0 if it is not set or is none.
func envInt(name string) int {
	n, _ := strconv.Atoi(os.Getenv(name))
	return n
}

// serve is the daemon's life. report, if not nil, is told once whether it serves.
func (a *app) serve(ctx context.Context, report *os.File, metrics string, opts sandbox.Options) (err error) {
	defer func() {
		if report != nil {
			sendReady(report, err) // it never served
		}
	}()
	// Modes of what programs create were settled by the kernel and by the overlay; the umask of whoever started the
	// daemon has no say in them.
	unix.Umask(0)
	if err := os.Chdir("/"); err != nil { // hold no directory that somebody wants to unmount
		return err
	}
	level := slog.LevelInfo
	if a.verbose {
		level = slog.LevelDebug
	}
	sink := a.err
	if report != nil {
		sink = &lateLog{path: logPath(a.home)}
	}
	logger := slog.New(slog.NewTextHandler(sink, &slog.HandlerOptions{Level: level}))
	opts.Logger = logger

	raiseFiles()
	home, err := sandbox.Open(ctx, a.home, opts)
	if err != nil {
		return err
	}
	if late, ok := sink.(*lateLog); ok {
		if err := late.open(); err != nil {
			return errors.Join(err, home.Close())
		}
	}
	if metrics != "" {
		at, stop, err := daemon.Observe(ctx, metrics, home)
		if err != nil {
			return errors.Join(err, home.Close())
		}
		defer func() {
			if err := stop(); err != nil {
				logger.Warn("metrics", "error", err)
			}
		}()
		logger.Info("serving metrics", "address", at.String())
	}
	served := make(chan error, 1)
	go func() { served <- daemon.Serve(ctx, a.home, version, home) }()
	if err := waitServing(ctx, a.home, served); err != nil {
		return errors.Join(err, home.Close())
	}
	logger.Info("serving", "home", a.home, "pid", os.Getpid(), "version", version)
	if report != nil {
		sendReady(report, nil)
		report = nil
	} else {
		a.note("serving %s, pid %d", a.home, os.Getpid())
	}
	serveErr := <-served
	if errors.Is(serveErr, context.Canceled) {
		serveErr = nil
	}
	err = errors.Join(serveErr, home.Close())
	logger.Info("ended", "err", err)
	return err
}

// waitServing returns when the socket answers, or with the error that ended Serve before.
func waitServing(ctx context.Context, home string, served chan error) error {
	for {
		select {
		case err := <-served:
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				err = errors.New("the daemon was stopped while starting")
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

// sendReady writes the report and closes the pipe. Nobody is left to be told of an error here.
func sendReady(report *os.File, err error) {
	state := ready{PID: os.Getpid()}
	if err != nil {
		state.Error, state.Code = err.Error(), exitCode(err)
	}
	line, jsonErr := json.Marshal(state)
	if jsonErr == nil {
		_, _ = report.Write(append(line, '\n'))
	}
	_ = report.Close()
}

// logPath is the log of a daemon in the background.
func logPath(home string) string { return filepath.Join(home, "daemon.log") }

// maxLog is the size from which a starting daemon puts the log aside as daemon.log.1.
const maxLog = 8 << 20

// lateLog keeps what is logged in memory until the home is known to be one of ours, then writes to the log in it.
// A foreign directory is never written to.
type lateLog struct {
	path string

	mu   sync.Mutex // guards all below
	held []byte
	file *os.File
}

// Write appends to the log. It is safe for concurrent use.
func (l *lateLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		return l.file.Write(p)
	}
	l.held = append(l.held, p...)
	return len(p), nil
}

// open starts writing to the file, and sends there what the Go runtime says when a process dies.
func (l *lateLog) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if info, err := os.Stat(l.path); err == nil && info.Size() > maxLog {
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return fmt.Errorf("daemon log: %w", err)
		}
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("daemon log: %w", err)
	}
	for _, std := range []int{1, 2} {
		if err := unix.Dup3(int(f.Fd()), std, 0); err != nil {
			return errors.Join(fmt.Errorf("daemon log: %w", err), f.Close())
		}
	}
	l.file = f
	_, err = f.Write(l.held)
	l.held = nil
	return err
}
