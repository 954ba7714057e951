package sandbox_test

import (
	"errors"
	"path/filepath"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// TestCallersAskForTheirSession: what is about a session and nothing in it is refused to who is bound to another one, by
// the home itself.
func TestCallersAskForTheirSession(t *testing.T) {
	h := openHome(t, filepath.Join(t.TempDir(), "home"), sandbox.Options{})
	a := sandbox.Access{Session: "a"}
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Access: a, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	at := api.PositionRequest{Access: a, Name: "p"}
	if _, err := h.SetPosition(t.Context(), api.SetPositionRequest{PositionRequest: at, Workspace: "w"}); err != nil {
		t.Fatal(err)
	}
	bound := caller.With(t.Context(), &caller.Caller{Session: "b", Sessions: []string{"b"}, Token: "t"})
	if _, err := h.Position(bound, at); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("the position: %v", err)
	}
	if _, err := h.Stats(bound, sandbox.StatsRequest{Access: a, OfSession: true}); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("the stats: %v", err)
	}
}
