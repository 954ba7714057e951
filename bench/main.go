package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
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
	e := &env{guard: &guard{}}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		<-signals
		cancel()
		fmt.Fprintln(os.Stderr, "\nbench: stopping and cleaning up; once more ends everything at once")
		<-signals
		e.guard.endAll()
		os.Exit(exitInterrupted)
	}()
	code := exitCode(ctx, run(ctx, e, os.Args[1:]))
	cancel()
	os.Exit(code)
}

// run runs the command line.
func run(ctx context.Context, e *env, args []string) error {
	started := false
	c := command(e, &started)
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	if err != nil && !started {
		return usageError{err} // an unknown suite, flag or argument
	}
	return err
}

// exitCode tells the user of a failure.
func exitCode(ctx context.Context, err error) int {
	var usage usageError
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
	case errors.Is(err, errWorse):
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitWorse
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		return exitFailed
	}
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }
