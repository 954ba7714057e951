package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"golang.org/x/sys/unix"
)

// terminal gives what to ask on: the standard streams, or, if some of them are redirected, the terminal that the process
// has. It has none if all of them are.
func (a *app) terminal() (in, out *os.File) {
	if isTerminal(a.in) && isTerminal(a.err) {
		return a.in.(*os.File), a.err.(*os.File)
	}
	if !isTerminal(a.in) && !isTerminal(a.out) && !isTerminal(a.err) {
		return nil, nil
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil
	}
	return tty, tty // open until the process ends: there may be no answer to read
}

// askEnding asks on the terminal what becomes of a workspace, which can be applied to dir, if that is not "". Without a
// terminal it is discarded; without an answer it is kept. Take says that this process had the foreground of the terminal,
// and takes it back.
func (a *app) askEnding(ctx context.Context, dir string, take bool) ending {
	kept := ending{keep: true}
	if cause := (interrupted{}); errors.As(context.Cause(ctx), &cause) && cause.signal != unix.SIGINT {
		return kept // there may be nobody to answer
	}
	in, out := a.terminal()
	if in == nil || a.json {
		return ending{}
	}
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if take { // a shell that was killed leaves the terminal with its own processes in the foreground
		signal.Ignore(unix.SIGTTOU)
		defer signal.Reset(unix.SIGTTOU)
		_ = unix.IoctlSetPointerInt(int(in.Fd()), unix.TIOCSPGRP, unix.Getpgrp()) // the terminal may be another session's
	}
	answers := make(chan string)
	go func() { // ends with the process, if nobody answers
		defer close(answers)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			select {
			case answers <- strings.ToLower(strings.TrimSpace(lines.Text())):
			case <-ctx.Done():
				return
			}
		}
	}()
	question := "Keep the workspace, or discard the changes? [k/d] "
	if dir != "" {
		question = "Apply the changes to " + quote(dir) + ", keep the workspace, or discard them? [a/k/d] "
	}
	for {
		_, _ = fmt.Fprint(out, question)
		select {
		case answer, ok := <-answers:
			switch {
			case !ok, answer == "k", answer == "keep":
				return kept
			case answer == "d", answer == "discard":
				return ending{}
			case dir != "" && (answer == "a" || answer == "apply"):
				return ending{apply: true}
			}
		case <-ctx.Done():
			return kept
		}
	}
}
