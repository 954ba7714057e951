package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// version is set by the linker.
var version = "devel"

func main() {
	if os.Getpid() == 1 {
		os.Exit(beInit())
	}
	if isHelper(os.Args[0]) {
		os.Exit(mountHelper(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal unix.Signal }

func (i interrupted) Error() string { return "interrupted by " + unix.SignalName(i.signal) }

// withSignals gives a context that the first SIGINT, SIGTERM or SIGHUP ends, with interrupted as its cause. Further
// signals are swallowed, so that what runs can clean up, until stop is called.
func withSignals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			if n, ok := s.(syscall.Signal); ok {
				cancel(interrupted{n})
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel(nil)
	}
}

// run is the whole command: it parses args, does the verb and returns the exit code.
func run(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := withSignals(context.Background())
	defer stop()
	a := &app{in: in, out: out, err: errOut, remains: "nothing was changed"}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if !a.parsed {
		err = usagef("%w", err)
	}
	var cause interrupted
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(ctx), &cause) {
		err = fmt.Errorf("%w; %s", cause, a.remains)
	}
	a.printError(err)
	return exitCode(err)
}
