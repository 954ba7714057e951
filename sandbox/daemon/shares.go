package daemon

import (
	"context"
	"slices"
	"time"

	"snapfs/internal/lockorder"
	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
)

// lane is a kind of call. Each lane has a part of the calls that the daemon has under way, so that those of one kind,
// however long they take, leave room for the others.
type lane int

const (
	short  lane = iota // calls that are done at once, unless something that they need stands still
	lasts              // imports, exports, comparisons, checks, collections, waits for storing, contents of files
	follow             // followers of events and watchers of files, who never end by themselves
	lanes
)

// laneNames say of what there are too many.
var laneNames = [lanes]string{short: "calls", lasts: "long calls", follow: "followers"}

// laneOf tells the lane of a request and the session that asks. Questions about the daemon itself, and the calls that
// end one or all, are in none: they hold nothing and wait for nothing but the end.
func laneOf(request any) (l lane, session string, counts bool) {
	if r, ok := request.(interface{ SessionID() (string, error) }); ok {
		session, _ = r.SessionID() // a malformed one is the call's to refuse
	}
	switch r := request.(type) {
	case wire.None, wire.CancelRequest:
		return short, "", false
	case sandbox.EventsRequest:
		if r.Follow {
			return follow, session, true
		}
	case sandbox.SnapshotRequest:
		if r.WaitStored {
			return lasts, session, true
		}
	case sandbox.ApplyRequest:
		if !r.Undo {
			return lasts, session, true
		}
	case sandbox.TurnsRequest:
		if r.Stat {
			return lasts, session, true
		}
	case sandbox.CreateRequest:
		if r.Source != "" {
			return lasts, session, true
		}
	case sandbox.UpRequest:
		if r.Source != "" {
			return lasts, session, true
		}
	case sandbox.WatchFilesRequest:
		return follow, session, true
	case sandbox.RemoveFileRequest:
		if r.Recursive {
			return lasts, session, true
		}
	case listDirRequest, sandbox.GetFileRequest, putFileRequest, sandbox.GlobRequest, sandbox.GrepRequest:
		return lasts, session, true
	case sandbox.ExportRequest, sandbox.ExtractRequest, sandbox.DiffRequest, sandbox.FilesRequest,
		sandbox.ConflictsRequest:
		return lasts, session, true
	case sandbox.GCRequest, sandbox.CheckRequest: // of the home
		return lasts, "", true
	}
	return short, session, true
}

// shares count the calls under way. In each lane a session may have as many as it leaves free, and one in any case
// while one is free. Those of users that are bound to sessions are half of the lane at most.
type shares struct {
	most [lanes]int // immutable

	mu    lockorder.Mutex[lockorder.DaemonShares]
	used  [lanes]int            // guarded by mu
	bound [lanes]int            // guarded by mu: those of bound users
	of    [lanes]map[string]int // guarded by mu: by session, none that is 0
	queue [lanes][]*waiter      // guarded by mu: who waits for room, in the order in which they came
}

// waiter waits for room.
type waiter struct {
	session string
	bound   bool
	ready   chan struct{} // closed when it has its place
}

// placeWait is how long a request from the network waits for room, and that of a Service which does not say.
const placeWait = 10 * time.Second

// newShares divides so many calls: a quarter each for what lasts and for followers, three eighths for short calls; the
// rest is for the calls that are in no lane, and for those that are told that there is no room.
func newShares(calls int) *shares {
	s := &shares{most: [lanes]int{short: max(calls*3/8, 1), lasts: max(calls/4, 1), follow: max(calls/4, 1)}}
	for l := range s.of {
		s.of[l] = map[string]int{}
	}
	return s
}

// enter counts a call until leave is called, or refuses it.
func (s *shares) enter(l lane, session string, bound bool) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.takeLocked(l, session, bound) {
		return nil, s.fullLocked(l, session)
	}
	return func() { s.leave(l, session, bound) }, nil
}

// wait is enter for who waits for room, for so long at most. Followers do not: others do not end.
func (s *shares) wait(ctx context.Context, l lane, session string, bound bool, most time.Duration) (leave func(), err error) {
	leave = func() { s.leave(l, session, bound) }
	s.mu.Lock()
	if s.takeLocked(l, session, bound) {
		s.mu.Unlock()
		return leave, nil
	}
	err = s.fullLocked(l, session)
	if l == follow {
		s.mu.Unlock()
		return nil, err
	}
	w := &waiter{session, bound, make(chan struct{})}
	s.queue[l] = append(s.queue[l], w)
	s.mu.Unlock()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-w.ready:
		return leave, nil
	case <-late.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.queue[l], w); i >= 0 {
		s.queue[l] = slices.Delete(s.queue[l], i, i+1)
		return nil, err
	}
	return leave, nil // it has got its place just now
}

// takeLocked takes a place, if there is room. The caller holds mu.
func (s *shares) takeLocked(l lane, session string, bound bool) bool {
	own, free := s.of[l][session], s.most[l]-s.used[l]
	if bound {
		free = min(free, max(s.most[l]/2, 1)-s.bound[l])
	}
	if free <= 0 || own > 0 && own >= free {
		return false
	}
	s.used[l]++
	s.of[l][session]++
	if bound {
		s.bound[l]++
	}
	return true
}

// fullLocked is the error of who finds no room. The caller holds mu.
func (s *shares) fullLocked(l lane, session string) error {
	err := wire.Unavailable("%d %s are under way, %d of them of this session, and there is room for %d: end some",
		s.used[l], laneNames[l], s.of[l][session], s.most[l])
	if l != follow {
		err = wire.Busy(err) // a follower would wait for others that do not end
	}
	return err
}

// leave gives a place back, and to who has waited for it the longest.
func (s *shares) leave(l lane, session string, bound bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[l]--
	if bound {
		s.bound[l]--
	}
	if s.of[l][session]--; s.of[l][session] == 0 {
		delete(s.of[l], session)
	}
	s.queue[l] = slices.DeleteFunc(s.queue[l], func(w *waiter) bool {
		if !s.takeLocked(l, w.session, w.bound) {
			return false
		}
		close(w.ready)
		return true
	})
}
