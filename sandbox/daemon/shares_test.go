package daemon

import (
	"errors"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
)

// TestLanes: what a call holds room of depends on what it asks for.
func TestLanes(t *testing.T) {
	own := sandbox.Access{Session: "own"}
	for _, tc := range []struct {
		request any
		lane    lane
		session string
		counts  bool
	}{
		{wire.None{}, short, "", false},
		{wire.CancelRequest{}, short, "", false},
		{sandbox.EventsRequest{Access: own}, short, "own", true},
		{sandbox.EventsRequest{Access: own, Follow: true}, follow, "own", true},
		{sandbox.SnapshotRequest{}, short, sandbox.DefaultSession, true},
		{sandbox.SnapshotRequest{WaitStored: true}, lasts, sandbox.DefaultSession, true},
		{sandbox.CreateRequest{Access: own}, short, "own", true},
		{sandbox.CreateRequest{Access: own, Source: "/x"}, lasts, "own", true},
		{sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Access: own}}, short, "own", true},
		{sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Access: own, Source: "/x"}}, lasts, "own", true},
		{sandbox.ExportRequest{Access: own}, lasts, "own", true},
		{sandbox.DiffRequest{Access: own}, lasts, "own", true},
		{sandbox.GCRequest{}, lasts, "", true},
		{sandbox.CheckRequest{}, lasts, "", true},
		{sandbox.ListRequest{Access: own}, short, "own", true},
		{sandbox.PauseRequest{Access: own}, short, "own", true},
	} {
		if l, session, counts := laneOf(tc.request); l != tc.lane || session != tc.session || counts != tc.counts {
			t.Errorf("%+v: lane %d, session %q, counts %v, want %d, %q, %v", tc.request, l, session, counts, tc.lane, tc.session, tc.counts)
		}
	}
}

// enterShares has a request take a place in its lane.
func enterShares(s *shares, request any, bound bool) (leave func(), err error) {
	l, session, _ := laneOf(request)
	return s.enter(l, session, bound)
}

// TestShares: a session takes what it leaves free in a lane, another finds room, other lanes are not touched, and what
// is given back can be had again.
func TestShares(t *testing.T) {
	s := newShares(64)
	fill := func(request any) (left []func()) {
		t.Helper()
		for {
			leave, err := enterShares(s, request, false)
			if err != nil {
				if !errors.Is(err, sandbox.ErrUnavailable) {
					t.Fatalf("refused with %v", err)
				}
				l, _, _ := laneOf(request)
				if busy := wire.NewError(err).Busy; busy == (l == follow) { // who follows does not ask again
					t.Errorf("%+v: busy is %v", request, busy)
				}
				return left
			}
			left = append(left, leave)
			if len(left) > 64 {
				t.Fatal("no bound")
			}
		}
	}
	greedy := sandbox.EventsRequest{Access: sandbox.Access{Session: "greedy"}, Follow: true}
	other := sandbox.EventsRequest{Access: sandbox.Access{Session: "other"}, Follow: true}
	first := fill(greedy)
	if len(first) != 8 {
		t.Errorf("a session has %d of 16", len(first))
	}
	if n := len(fill(other)); n != 4 {
		t.Errorf("another has %d of the 8 that are left", n)
	}
	if n := len(fill(sandbox.DiffRequest{})); n != 8 {
		t.Errorf("beside followers %d long calls, want 8", n)
	}
	if n := len(fill(sandbox.ListRequest{})); n != 12 {
		t.Errorf("beside them %d short calls, want 12", n)
	}
	if _, _, counts := laneOf(wire.None{}); counts {
		t.Error("a question to the daemon itself is in a lane")
	}
	for _, leave := range first {
		leave()
	}
	if n := len(fill(greedy)); n != 6 {
		t.Errorf("with four of another a session has %d, want 6", n)
	}
	for _, calls := range []int{1, 8} { // under the smallest limits there is one of each kind
		s = newShares(calls)
		for _, request := range []any{greedy, sandbox.DiffRequest{}, sandbox.ListRequest{}} {
			if _, err := enterShares(s, request, false); err != nil {
				t.Errorf("of %d calls none is %+v: %v", calls, request, err)
			}
		}
	}
}
