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
	"golang.org/x/term"
)

// askEnding asks on the terminal what becomes of a workspace, which can be applied to dir, if that is not "". Without a
// terminal it is discarded; without an answer it is kept.
func (a *app) askEnding(ctx context.Context, dir string) ending {
	in, ok := a.in.(*os.File)
	out, ok2 := a.err.(*os.File)
	if !ok || !ok2 || a.json || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return ending{}
	}
	kept := ending{keep: true}
	if cause := (interrupted{}); errors.As(context.Cause(ctx), &cause) && cause.signal != unix.SIGINT {
		return kept // there may be nobody to answer
	}
	ctx, stop := signal.NotifyContext(context.WithoutCancel(ctx), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	// A shell that was killed leaves the terminal with its own processes in the foreground.
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(in.Fd()), unix.TIOCSPGRP, unix.Getpgrp()) // the terminal may be another session's
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
		_, _ = fmt.Fprint(a.err, question)
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
