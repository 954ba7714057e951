package daemon_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/client"
	"snapfs/sandbox/daemon/daemontest"
)

// TestFollowersLeaveRoom has more programs follow the events than the daemon has connections for: some are refused,
// those of another session find room, and everybody else's calls work as before.
func TestFollowersLeaveRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "home")
	s := start(t, dir, false)
	for _, session := range []string{"many", "few"} {
		if _, err := s.Create(t.Context(), sandbox.CreateRequest{Access: sandbox.Access{Session: session}, Name: session}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	const all = 1200
	type outcome struct {
		session string
		err     error // nil: it follows
	}
	outcomes := make(chan outcome, all+1)
	followers := func(session string, n int) {
		for range n {
			ended.Go(func() {
				first := true
				err := s.Events(ctx, sandbox.EventsRequest{Access: sandbox.Access{Session: session}, Follow: true}, func(sandbox.Event) error {
					if first {
						outcomes <- outcome{session, nil}
					}
					first = false
					return nil
				})
				if first {
					outcomes <- outcome{session, err}
				}
			})
		}
	}
	followers("many", all)
	follow, refused := 0, 0
	for deadline := time.After(time.Minute); follow+refused < all; {
		select {
		case o := <-outcomes:
			switch {
			case o.err == nil:
				follow++
			case errors.Is(o.err, sandbox.ErrUnavailable):
				refused++
			default:
				t.Errorf("a follower: %v", o.err)
				refused++
			}
		case <-deadline:
			t.Fatalf("%d follow, %d were refused, the others still wait", follow, refused)
		}
	}
	if follow == 0 || refused == 0 {
		t.Errorf("%d follow, %d were refused", follow, refused)
	}
	followers("few", 1)
	if o := <-outcomes; o.session != "few" || o.err != nil {
		t.Errorf("a follower of another session: %+v", o)
	}

	other, err := client.Dial(t.Context(), dir)
	if err != nil {
		t.Fatalf("a new client: %v", err)
	}
	many := sandbox.Access{Session: "many"}
	if _, err := other.Workspaces(t.Context(), sandbox.ListRequest{Access: many}); err != nil {
		t.Errorf("list: %v", err)
	}
	if _, err := other.Pause(t.Context(), sandbox.PauseRequest{Access: many, Workspace: "many"}); err != nil {
		t.Errorf("pause: %v", err)
	}
	if err := other.Diff(t.Context(), sandbox.DiffRequest{Access: many, A: "many"}, func(sandbox.Change) error { return nil }); err != nil {
		t.Errorf("diff: %v", err)
	}
	if err := other.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	ended.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestBusyCallsWait has one session make more calls at a time than the daemon has room for: each is done in its turn.
func TestBusyCallsWait(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "home"), false)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Create(t.Context(), sandbox.CreateRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 400 {
		wg.Go(func() {
			err := s.Diff(t.Context(), sandbox.DiffRequest{A: "w"}, func(sandbox.Change) error { return nil })
			if err != nil {
				t.Errorf("diff: %v", err)
			}
		})
	}
	wg.Wait()
}

// TestManyNetworkClients has 200 clients of one token ask at a time: none is refused, though the session has not as many
// places.
func TestManyNetworkClients(t *testing.T) {
	d := daemontest.Start(t, nil)
	secret := d.Token(t, "a").Secret
	if r := d.Call(t, wire.CallCreate, secret, sandbox.CreateRequest{Name: "w"}); r.Status != 200 {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	if r := d.Call(t, wire.CallSnapshot, secret, sandbox.SnapshotRequest{Workspace: "w", Name: "first"}); r.Status != 200 {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			for _, c := range []struct {
				call    string
				request any
			}{
				{wire.CallShow, sandbox.RefRequest{Ref: "w"}},
				{wire.CallWorkspaces, sandbox.ListRequest{}},
				{wire.CallSnapshots, sandbox.ListRequest{Workspace: "w"}},
				{wire.CallStats, sandbox.StatsRequest{Ref: "w:first"}},
				{wire.CallFiles, sandbox.FilesRequest{Ref: "w:first"}},
			} {
				if r := d.Call(t, c.call, secret, c.request); r.Status != 200 {
					t.Errorf("%s: %d %s", c.call, r.Status, r.Body)
				}
			}
		})
	}
	wg.Wait()
}
