package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"snapfs/internal/holder"
	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

const (
	// holderWait is how long a daemon may take to answer before its holder is asked.
	holderWait = 300 * time.Millisecond
	// startPatience is how long 'stop' and 'status' wait for a daemon that takes mounts over.
	startPatience = 10 * time.Second
	// managedFailures is how many daemons in a row may fail to serve that a service manager starts, before that is an error.
	managedFailures = 6
	// holderPatience is how long the holder may take to answer before it is looked at whether it is stopped.
	holderPatience = time.Second
	// holderAgain is when it is asked again.
	holderAgain = 100 * time.Millisecond
)

// errCannotStart says that the holder of the home cannot start a daemon again.
var errCannotStart = errors.New("the daemon of this home died and cannot be started again")

// dial connects to the daemon of the home. While a daemon that has died is started again, it waits in the socket. The
// error is errCannotStart if none can be started, and holder.ErrStopped if nobody does because the holder is stopped.
func (a *app) dial(ctx context.Context) (*client.Client, error) {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.watchHolder(inner); err != nil {
			cancel(err)
		}
	}()
	c, err := client.DialAs(inner, a.home, a.Version)
	if cause := context.Cause(inner); err != nil && cause != nil && ctx.Err() == nil {
		err = cause
	}
	cancel(nil)
	<-done
	return c, err
}

// watchHolder has the holder of the home start a daemon if it has given up, and returns the error if that fails. It returns
// nil when ctx ends.
func (a *app) watchHolder(ctx context.Context) error {
	asked := false
	for wait := holderWait; ; wait = holderAgain {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		s, err := a.askHolder(ctx)
		switch {
		case errors.Is(err, holder.ErrStopped):
			return failure(api.ErrUnavailable, "home %s: %w; '%s --force' ends it and the daemon", a.home, err, a.hint("stop"))
		case err == nil && s.Managed && !s.Ready && s.Failures >= managedFailures:
			return failure(api.ErrUnavailable, "%w", notYet(s))
		case err != nil || !s.GivenUp:
		case asked:
			return failure(api.ErrUnavailable, "%w: %s%s", errCannotStart, lastDeath(s), mounted(s))
		default:
			asked = true
			_, _ = holder.AskStart(ctx, a.home) // it is asked again what it does
		}
	}
}

// askHolder asks the holder of the home what it does, and does not wait for one that is stopped.
func (a *app) askHolder(ctx context.Context) (holder.Status, error) {
	limited, cancel := context.WithTimeout(ctx, holderPatience)
	defer cancel()
	return holder.Ask(limited, a.home)
}

// errNotYet says that a daemon which has died is being started again, and does not come to serve.
var errNotYet = errors.New("the daemon of this home died and does not come to serve again")

// notYet is errNotYet with what is known.
func notYet(s holder.Status) error {
	text := "for some time"
	if !s.Since.IsZero() {
		text = "since " + s.Since.Format(time.TimeOnly)
	}
	if s.Doing != "" {
		text += ": it is at " + s.Doing
	}
	if s.Failures > 0 {
		text += fmt.Sprintf("; %d attempts have failed: %s", s.Failures, lastDeath(s))
	}
	if s.Managed {
		text += "; its service manager starts it again ('systemctl status')"
	}
	return fmt.Errorf("%w: %s%s", errNotYet, text, mounted(s))
}

// lastDeath says why a daemon does not start.
func lastDeath(s holder.Status) string {
	for i := len(s.Deaths) - 1; i >= 0; i-- {
		d := s.Deaths[i]
		if d.Served {
			continue
		}
		return strings.TrimSuffix(d.String(), ".")
	}
	return "nobody knows why"
}

// mounted says what waits for a daemon.
func mounted(s holder.Status) string {
	if s.Kept == 0 {
		return ""
	}
	return fmt.Sprintf("; %d mounts wait for it: 'snapfs stop' gives them up", s.Kept)
}
