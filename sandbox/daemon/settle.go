package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// Bounds of the wait for calls under way before another program takes the daemon's place: for those that take long,
// while others come and go, then for these, while new ones wait.
var (
	longWait  = 30 * time.Second
	shortWait = 10 * time.Second
)

// finishWait is for how long short calls, such as a snapshot that is being sealed, may go on when the daemon ends.
const finishWait = 5 * time.Second

// until is what ends a call, beside its client.
func (s *server) until(request any) context.Context {
	l, _, counts := laneOf(request)
	if !counts {
		return s.calls
	}
	return s.untilOf(l)
}

// untilOf is until for a lane.
func (s *server) untilOf(l lane) context.Context {
	if l == short {
		return s.shorts
	}
	return s.calls
}

// finishShorts waits for the short calls under way. No new ones begin.
func (s *server) finishShorts() {
	late := time.NewTimer(finishWait)
	defer late.Stop()
	for len(s.underway(short)) > 0 {
		select {
		case <-s.fewer:
		case <-late.C:
			return
		}
	}
}

// underway is a call under way.
type underway struct {
	lane  lane
	call  string
	since time.Time
}

// enterLane counts a call until leave is called, or refuses it. A client of the network waits for room; one on the socket
// is told to ask again.
func (s *server) enterLane(ctx context.Context, request any, x *exchange) (leave func(), err error) {
	l, session, counts := laneOf(request)
	if !counts {
		return func() {}, nil
	}
	if x.who.network {
		return s.waitLane(ctx, l, session, x.who.bound(), x.route, placeWait)
	}
	leaveShares, err := s.shares.enter(l, session, x.who.bound())
	return s.allowed(l, x.route, leaveShares, err)
}

// waitLane is enterLane for who waits for room, for so long at most.
func (s *server) waitLane(ctx context.Context, l lane, session string, bound bool, route string, most time.Duration) (leave func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.calls, cancel)()
	leaveShares, err := s.shares.wait(ctx, l, session, bound, most)
	if err != nil && s.calls.Err() != nil {
		err = s.again(errStopping)
	}
	return s.allowed(l, route, leaveShares, err)
}

// allowed notes a call that has a place in its lane.
func (s *server) allowed(l lane, route string, leaveShares func(), err error) (leave func(), _ error) {
	if err != nil {
		return nil, err
	}
	ended, err := s.allow(l, route)
	if err != nil {
		leaveShares()
		return nil, err
	}
	return func() { leaveShares(); ended() }, nil
}

// allow notes a call until leave is called, or has the client ask again if another program is about to take the daemon's
// place.
func (s *server) allow(l lane, route string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused[l] {
		return nil, wire.Busy(wire.Unavailable("another daemon is about to take the place of this one"))
	}
	u := &underway{l, callOf(route), time.Now()}
	s.under[u] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.under, u)
		select {
		case s.fewer <- struct{}{}:
		default: // whoever waits looks at all
		}
	}, nil
}

// callOf is the name of a call in a pattern; what is no call keeps its pattern.
func callOf(route string) string { return strings.TrimPrefix(route, "POST "+wire.Route("")) }

// settle waits for the calls under way, so that another program can take the daemon's place. Followers of events end with
// the server, and so does with force what takes too long: its client asks the next daemon. With an error, the server
// goes on. Else new calls wait for the end of the server, which must follow.
func (s *server) settle(ctx context.Context, force bool, progress func(sandbox.Progress)) (err error) {
	s.mu.Lock()
	busy := s.settling
	s.settling = true
	s.mu.Unlock()
	if busy {
		return fmt.Errorf("%w: another program is about to take the place of the daemon already", sandbox.ErrConflict)
	}
	defer func() {
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.settling, s.refused = false, [lanes]bool{}
		}
	}()
	progress(sandbox.Progress{Stage: api.StageWaiting, Total: -1})
	if err := s.settleLane(ctx, lasts, longWait, force); err != nil {
		return err
	}
	return s.settleLane(ctx, short, shortWait, force)
}

// settleLane has new calls in a lane wait, and waits for those under way.
func (s *server) settleLane(ctx context.Context, l lane, most time.Duration, force bool) error {
	s.mu.Lock()
	s.refused[l] = true
	s.mu.Unlock()
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		under := s.underway(l)
		if len(under) == 0 {
			return nil
		}
		select {
		case <-s.fewer:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.calls.Done():
			return errStopping
		case <-late.C:
			if force {
				return nil
			}
			return fmt.Errorf("%w: calls do not end: %s: try again when they have, or use --force, which has them begin anew",
				sandbox.ErrConflict, namedCalls(under))
		}
	}
}

// underway lists the calls in a lane, the oldest first.
func (s *server) underway(l lane) (under []*underway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for u := range s.under {
		if u.lane == l {
			under = append(under, u)
		}
	}
	slices.SortFunc(under, func(a, b *underway) int { return a.since.Compare(b.since) })
	return under
}

// mostNamed is how many calls or mounts a message names.
const mostNamed = 5

// namedCalls names calls for a message.
func namedCalls(under []*underway) string {
	var list []string
	for _, u := range under[:min(len(under), mostNamed)] {
		list = append(list, fmt.Sprintf("%s for %v", u.call, time.Since(u.since).Round(time.Second)))
	}
	return strings.Join(list, "; ") + andMore(len(under)-len(list))
}

// andMore says that a message leaves some out.
func andMore(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(", and %d more", n)
}
