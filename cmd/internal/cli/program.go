package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// Program is a command made of the verbs of this package, with or without the engine.
type Program struct {
	Version string
	Engine  *Engine // nil if another program has it
}

// Main runs the command and returns the exit code.
func (p Program) Main() int {
	if os.Getpid() == 1 {
		return beInit()
	}
	if os.Args[0] == insideName {
		return beInside(os.Args[1:])
	}
	if isHelper(os.Args[0]) {
		return p.mountHelper(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	}
	return p.run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal unix.Signal }

func (i interrupted) Error() string { return "interrupted by " + unix.SignalName(i.signal) }

// Terminated reports whether SIGTERM ended a context of this package: a service manager's way to end a process that it
// starts again.
func Terminated(ctx context.Context) bool {
	var cause interrupted
	return errors.As(context.Cause(ctx), &cause) && cause.signal == unix.SIGTERM
}

// Succeeded reports whether SIGUSR2 ended a context of this package: another daemon follows, which goes on with the mounts.
func Succeeded(ctx context.Context) bool {
	var cause interrupted
	return errors.As(context.Cause(ctx), &cause) && cause.signal == unix.SIGUSR2
}

// withSignals returns a context that the first SIGINT, SIGTERM or SIGHUP cancels, with interrupted as its cause. Until
// stop is called, further signals are ignored, so that the verb can clean up. If hangup is not nil, SIGHUP sends to it
// instead; one that is not received yet stands for all; and SIGUSR2 cancels, too. Else a SIGHUP that the process was
// started to ignore is ignored.
func withSignals(parent context.Context, hangup chan<- struct{}) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	if hangup != nil || !signal.Ignored(unix.SIGHUP) { // as nohup(1) wants
		signal.Notify(signals, unix.SIGHUP)
	}
	if hangup != nil {
		signal.Notify(signals, unix.SIGUSR2)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range signals {
			n, ok := s.(syscall.Signal)
			switch {
			case ok && n == unix.SIGHUP && hangup != nil:
				select {
				case hangup <- struct{}{}:
				default:
				}
			case ok:
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

// run parses args, runs the verb and returns the exit code.
func (p Program) run(args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{Program: p, in: in, out: out, err: errOut, remains: "nothing was changed"}
	a.ctx, a.stop = context.Background(), func() {}
	defer func() { a.stop() }()
	root := a.rootCommand(args)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(a.ctx)
	if err == nil {
		return api.ExitDone
	}
	if !a.parsed {
		err = withUsage(cmd, err)
	}
	var cause interrupted
	if errors.Is(err, context.Canceled) && errors.As(context.Cause(a.ctx), &cause) {
		err = fmt.Errorf("%w; %s", cause, a.remains)
	}
	a.printError(err)
	return exitCode(err)
}
