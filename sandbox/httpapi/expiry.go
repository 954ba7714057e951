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
	// endTime bounds one end: a workspace whose programs or host hang may take for ever.
	endTime = time.Minute
	// maxEnds bounds the ends under way, and maxOwnEnds those of a session, so that none holds up the others'.
	maxEnds, maxOwnEnds = 16, 4
	// An end that failed is tried again after tryAgain, then after twice that, and so on up to tryLast.
	tryAgain, tryLast = 10 * time.Second, 10 * time.Minute
	// Where ends wait for others, their places are given anew after lookPause and lookShare times what a look takes.
	lookPause, lookShare = 10 * time.Millisecond, 10
)

// poke has Run look at ends now.
func (s *Server) poke() {
	select {
	case s.wake <- struct{}{}:
	default: // it is about to
	}
}

// Run pauses and destroys sandboxes whose time has come, until ctx ends and none is under way.
func (s *Server) Run(ctx context.Context) {
	e := endings{
		server: s, running: map[string]bool{}, of: map[string]int{}, later: map[end]again{}, ended: make(chan ended, maxEnds),
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			for len(e.running) > 0 {
				e.note(<-e.ended)
			}
			return
		case one := <-e.ended:
			if e.note(one); e.waiting {
				timer.Reset(lookPause + lookShare*e.took)
			}
			continue
		case <-s.wake:
		case <-timer.C:
		}
		timer.Reset(e.look(ctx))
	}
}

// endings are the ends that one Run has begun. Its goroutine alone uses them.
type endings struct {
	server  *Server
	running map[string]bool // by workspace
	of      map[string]int  // how many are running, by session
	waiting bool            // something is due for which there was no place
	later   map[end]again   // ends that were made, or failed, and are still due: paused sandboxes keep theirs
	took    time.Duration   // what the last look took
	ended   chan ended      // of capacity maxEnds
}

// end is what a label of a sandbox says.
type end struct{ workspace, session, label string }

// ended is an end that is no longer under way.
type ended struct {
	end

	err error
}

// again is when an end is looked at again, and for how long it was put off if it has failed.
type again struct {
	next time.Time
	wait time.Duration
}

// note learns that an end is no longer under way.
func (e *endings) note(one ended) {
	delete(e.running, one.workspace)
	if e.of[one.session]--; e.of[one.session] == 0 {
		delete(e.of, one.session)
	}
	if one.err == nil {
		e.later[one.end] = again{next: time.Now().Add(lookAtLeast)}
		return
	}
	e.server.o.Log.Warn("a sandbox that is due does not end",
		"workspace", one.workspace, "session", one.session, "label", one.label, "error", one.err)
	wait := min(max(tryAgain, 2*e.later[one.end].wait), tryLast)
	e.later[one.end] = again{time.Now().Add(wait), wait}
}

// look begins what is due, and says when to look again.
func (e *endings) look(ctx context.Context) time.Duration {
	s, wait, begun, due := e.server, lookAtLeast, time.Now(), map[end]bool{}
	e.waiting = false
	for _, label := range []string{labelEnds, labelExpires} {
		for l := range s.service.Labelled(label) {
			at := timeLabel(l.Labels, label)
			if at.IsZero() {
				continue
			}
			if left := at.Sub(s.o.Now()); left > 0 {
				wait = min(wait, left)
				continue
			}
			one := end{l.Workspace, l.Session, label}
			due[one] = true
			if left := time.Until(e.later[one].next); left > 0 {
				wait = min(wait, left)
				continue
			}
			if e.running[one.workspace] || len(e.running) == maxEnds || e.of[one.session] == maxOwnEnds {
				e.waiting = true
				continue
			}
			e.begin(ctx, one)
		}
	}
	for one := range e.later {
		if !due[one] {
			delete(e.later, one)
		}
	}
	e.took = time.Since(begun)
	return wait
}

// begin begins an end, for which there is a place.
func (e *endings) begin(ctx context.Context, one end) {
	e.running[one.workspace] = true
	e.of[one.session]++
	go func() {
		limited, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		err := e.server.end(limited, one)
		if ctx.Err() != nil {
			err = nil // the next Run does it
		}
		e.ended <- ended{one, err}
	}()
}

// end ends a sandbox for its owner, if it is still due.
func (s *Server) end(ctx context.Context, one end) error {
	who := api.Access{Session: one.session}
	w, err := s.sandbox(ctx, who, one.workspace)
	if errors.Is(err, api.ErrNotFound) {
		return nil // it is gone, or no sandbox
	}
	if err != nil {
		return err
	}
	at := timeLabel(w.Labels, one.label)
	if at.IsZero() || at.After(s.o.Now()) || one.label == labelExpires && state(w) == Paused {
		return nil
	}
	s.o.Log.Info("the time of a sandbox has come", "workspace", one.workspace, "session", one.session, "label", one.label)
	if one.label == labelEnds {
		return s.destroy(ctx, who, w, true)
	}
	return s.hold(ctx, who, w)
}
