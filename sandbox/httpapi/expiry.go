package httpapi

import (
	"context"
	"errors"
	"time"

	"snapfs/sandbox/api"
)

// The ends of sandboxes are in labels of their workspaces, so that they outlive the service. Run looks at them when one is
// due, when one has changed, and every so often, for the clock of the machine may be set.

const (
	// lookAtLeast is how often ends are looked at.
	lookAtLeast = time.Minute
	// tryAgain is when an end that failed is tried again.
	tryAgain = 10 * time.Second
)

// poke has Run look at ends now.
func (s *Server) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it is about to
	}
}

// Run pauses and destroys sandboxes whose time has come, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		timer.Reset(s.look(ctx))
	}
}

// look ends what is due, and says when to look again.
func (s *Server) look(ctx context.Context) time.Duration {
	wait := lookAtLeast
	for _, end := range []struct {
		label string
		do    func(context.Context, api.Access, api.Workspace) error
	}{
		{labelEnds, func(ctx context.Context, who api.Access, w api.Workspace) error {
			return s.destroy(ctx, who, w, true)
		}},
		{labelExpires, s.hold},
	} {
		for l := range s.service.Labelled(end.label) {
			at := timeLabel(l.Labels, end.label)
			if at.IsZero() {
				continue
			}
			if left := at.Sub(s.o.Now()); left > 0 {
				wait = min(wait, left)
				continue
			}
			if err := s.endOne(ctx, l.Workspace, l.Session, end.label, end.do); err != nil && ctx.Err() == nil {
				s.o.Log.Warn("a sandbox that is due does not end", "workspace", l.Workspace, "label", end.label, "error", err)
				wait = min(wait, tryAgain)
			}
		}
	}
	return wait
}

// endOne ends a sandbox for its owner, if it is still due.
func (s *Server) endOne(
	ctx context.Context, name, session, label string, do func(context.Context, api.Access, api.Workspace) error,
) error {
	who := api.Access{Session: session}
	w, err := s.sandbox(ctx, who, name)
	if errors.Is(err, api.ErrNotFound) {
		return nil // it is gone, or no sandbox
	}
	if err != nil {
		return err
	}
	at := timeLabel(w.Labels, label)
	if at.IsZero() || at.After(s.o.Now()) || label == labelExpires && state(w) == Paused {
		return nil
	}
	s.o.Log.Info("the time of a sandbox has come", "workspace", name, "session", session, "label", label)
	return do(ctx, who, w)
}
