package daemon

import (
	"errors"
	"net"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/internal/peer"
)

func TestParseAccess(t *testing.T) {
	for _, bad := range []string{
		"", "uid=1", "uid=1:session=", "uid=1:session=a,", "uid=1:session=/", "uid=x:session=a", "uid=-1:session=a",
		"uid=4294967295:session=a", "uid=0:session=a", "user=root:session=a", "user=nobody-of-this-name:session=a", "pid=1:session=a",
		"1:session=a", "group=none-of-this-name:session=a",
	} {
		_, err := ParseAccess("", []string{bad})
		if !errors.Is(err, sandbox.ErrInvalid) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ParseAccess("none-of-this-name", nil); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a group that is not there: %v", err)
	}
	root, err := user.LookupGroupId("0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := ParseAccess("7", []string{"uid=5:session=a,b", "gid=6:session=uid:x", "group=" + root.Name + ":session=c", "uid=5:session=d"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		user peer.User
		want []string
	}{
		{peer.User{UID: 5, GID: 5}, []string{"a", "b", "d"}},
		{peer.User{UID: 5, GID: 7}, []string{"a", "b", "d"}},
		{peer.User{UID: 8, GID: 6}, []string{"uid:x"}},
		{peer.User{UID: 8, GID: 8, Groups: []uint32{1, 6}}, []string{"uid:x"}},
		{peer.User{UID: 8, GID: 0}, []string{"c"}},
		{peer.User{UID: 8, GID: 8, Groups: []uint32{7}}, []string{"uid-8"}},
		{peer.User{UID: 6, GID: 8}, nil},
	} {
		if got := a.sessions(&tc.user); !slices.Equal(got, tc.want) {
			t.Errorf("%+v: %v, want %v", tc.user, got, tc.want)
		}
	}
}

// TestAdmit: each request of a bound user becomes one of its sessions, and calls without a session are refused, also
// those that are not known here.
func TestAdmit(t *testing.T) {
	bound := &asker{user: &peer.User{UID: 5}, sessions: []string{"a", "b"}}
	create := sandbox.UpRequest{}
	if err := bound.admit(wire.Route(wire.CallUp), &create); err != nil || create.Session != "a" {
		t.Errorf("without a session: %+v, %v", create.Access, err)
	}
	stats := sandbox.StatsRequest{}
	if err := bound.admit(wire.Route(wire.CallStats), &stats); err != nil || !stats.OfSession {
		t.Errorf("stats: %+v, %v", stats, err)
	}
	for _, request := range []*sandbox.ListRequest{
		{Access: sandbox.Access{Session: "c"}}, {Access: sandbox.Access{Session: "a", AllowCrossSession: true}},
	} {
		if err := bound.admit(wire.Route(wire.CallWorkspaces), request); !errors.Is(err, sandbox.ErrRefused) {
			t.Errorf("%+v: %v", request, err)
		}
	}
	for _, call := range []string{wire.CallGC, wire.CallCheck, wire.CallStop, "new"} {
		if err := bound.admit(wire.Route(call), &sandbox.ListRequest{}); !errors.Is(err, sandbox.ErrRefused) {
			t.Errorf("%s: %v", call, err)
		}
	}
	if err := bound.admit(wire.Route(wire.CallShow), &wire.None{}); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("a request without a session: %v", err)
	}
	if err := (&asker{user: &peer.User{UID: 6}}).admit(wire.Route(wire.CallInfo), &wire.None{}); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("a stranger: %v", err)
	}
	if err := (&asker{trusted: true}).admit(wire.Route("new"), nil); err != nil {
		t.Errorf("root: %v", err)
	}
}

// TestBoundRoom: users that are bound to sessions leave half of the connections and of each lane to others, however many
// they are, and strangers take next to nothing.
func TestBoundRoom(t *testing.T) {
	inner, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	l := limit(inner, 40, Access{}.who)
	defer l.Close() //nolint:errcheck // nothing was accepted
	count := func(who *asker) (n int) {
		for range 100 {
			if l.enter(who) {
				n++
			}
		}
		return n
	}
	one := &asker{user: &peer.User{UID: 5}, sessions: []string{"a"}}
	got := count(one)
	if got != 10 {
		t.Errorf("one user has %d connections of 40, want 10", got)
	}
	for uid := range uint32(20) {
		got += count(&asker{user: &peer.User{UID: 10 + uid}, sessions: []string{"a"}})
	}
	if got != 20 {
		t.Errorf("all have %d connections of 40, want 20", got)
	}
	if n := count(&asker{user: &peer.User{UID: 9}}); n != maxStrangers {
		t.Errorf("strangers have %d connections, want %d", n, maxStrangers)
	}
	if n := count(&asker{trusted: true}); n != 100 {
		t.Errorf("root has %d connections", n) // the room as a whole is counted elsewhere
	}
	for range 10 {
		l.leave(one)
	}
	if n := count(one); n == 0 {
		t.Error("what was given back cannot be had again")
	}

	s := newShares(64) // 24 short calls
	calls := 0
	for i := range 100 {
		if _, err := enterShares(s, sandbox.ListRequest{Access: sandbox.Access{Session: "s" + string(rune('a'+i%20))}}, true); err == nil {
			calls++
		}
	}
	if calls != 12 {
		t.Errorf("bound users have %d calls of 24, want 12", calls)
	}
	if _, err := enterShares(s, sandbox.ListRequest{}, false); err != nil {
		t.Errorf("root beside them: %v", err)
	}
}
