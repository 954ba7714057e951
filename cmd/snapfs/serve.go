package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/cmd/internal/cli"
	"snapfs/sandbox"
	"snapfs/sandbox/client"
	"snapfs/sandbox/daemon"
)

// serve runs the daemon until ctx ends or a client stops it.
func serve(ctx context.Context, o cli.ServeOptions) error {
	// The kernel and the overlay have applied the umask of the calling program. The daemon's own umask must not change
	// the modes of files.
	unix.Umask(0)
	if err := os.Chdir("/"); err != nil { // do not keep the file system of the working directory busy
		return err
	}
	level := slog.LevelInfo
	if o.Verbose {
		level = slog.LevelDebug
	}
	late := &lateLog{path: o.LogPath}
	var sink io.Writer = late
	if o.LogPath == "" {
		sink = o.Log
	}
	logger := slog.New(slog.NewTextHandler(sink, &slog.HandlerOptions{Level: level}))

	raiseFiles()
	home, err := sandbox.Open(ctx, o.Home, sandbox.Options{
		Logger: logger, MustExist: o.MustExist, Remount: o.Remount, IdleAfter: o.IdleAfter,
		Transport: o.Transport, EnableURing: o.EnableURing,
		Limits: sandbox.Limits{Snapshots: o.MaxSnapshots, Bytes: o.MaxBytes},
		Events: sandbox.EventLimits{Keep: o.EventsKeep, Age: o.EventsAge},
	})
	if err != nil {
		return err
	}
	if o.LogPath != "" {
		if err := late.open(); err != nil {
			return errors.Join(err, home.Close())
		}
	}
	if o.Metrics != "" {
		at, stop, err := daemon.Observe(ctx, o.Metrics, home)
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
	go func() { served <- daemon.Serve(ctx, o.Home, o.Version, home) }()
	if err := waitServing(ctx, o.Home, served); err != nil {
		return errors.Join(err, home.Close())
	}
	logger.Info("serving", "home", o.Home, "pid", os.Getpid(), "version", o.Version)
	o.Ready()
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
