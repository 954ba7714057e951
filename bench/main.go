package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"snapfs/bench/internal/report"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/usage"
)

// Exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitWorse       = 3 // a comparison found a figure of snapfs that got worse
	exitInterrupted = 130
)

func main() {
	syscall.Umask(0o022) // the corpora's modes do not depend on who builds them
	ctx, cancel := context.WithCancel(context.Background())
	e := &suite.Env{Guard: &scratch.Guard{}}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		<-signals
		cancel()
		fmt.Fprintln(os.Stderr, "\nbench: stopping and cleaning up; once more ends everything at once")
		<-signals
		e.Guard.EndAll()
		os.Exit(exitInterrupted)
	}()
	code := exitCode(ctx, run(ctx, e, os.Args[1:]))
	cancel()
	os.Exit(code)
}

// run runs the command line.
func run(ctx context.Context, e *suite.Env, args []string) error {
	started := false
	c := command(e, &started)
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	if err != nil && !started {
		return usage.Wrap(err) // an unknown suite, flag or argument
	}
	return err
}

// exitCode prints a failure and gives the exit code for it.
func exitCode(ctx context.Context, err error) int {
	var usage usage.Error
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		if !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitUsage
	case errors.Is(err, report.ErrWorse):
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitWorse
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitFailed
	}
}
