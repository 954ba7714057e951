package sandbox_test

import (
	"errors"
	"path/filepath"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// TestLimitsAreNotForBoundCallers: who is bound to the session of a workspace changes its limits by no call, and may ask for
// it with those that it has.
func TestLimitsAreNotForBoundCallers(t *testing.T) {
	h := openHome(t, filepath.Join(t.TempDir(), "home"), sandbox.Options{})
	a := sandbox.Access{Session: "a"}
	few := api.Quota{Inodes: 10}
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Access: a, Name: "w", Quota: few}); err != nil {
		t.Fatal(err)
	}
	up := func(q api.Quota) sandbox.UpRequest {
		return sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Access: a, Name: "w", Quota: q}}
	}
	many, bound := int64(1<<40), caller.With(t.Context(), &caller.Caller{Session: "a", Sessions: []string{"a"}, Token: "t"})
	if _, err := h.Up(bound, up(few)); err != nil {
		t.Errorf("the limits that it has: %v", err)
	}
	if _, err := h.Up(bound, up(api.Quota{Inodes: many})); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("up with other limits: %v", err)
	}
	if _, err := h.SetQuota(bound, api.QuotaRequest{Access: a, Workspace: "w", Inodes: &many}); !errors.Is(err, sandbox.ErrRefused) {
		t.Errorf("other limits: %v", err)
	}
	if _, err := h.Up(t.Context(), up(api.Quota{Inodes: many})); err != nil {
		t.Errorf("by who runs the daemon: %v", err)
	}
}
