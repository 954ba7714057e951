package sandbox_test

import (
	"context"
	"errors"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// TestWorkspacesAreBounded: a session has so many workspaces, however they are made, and another has its own.
func TestWorkspacesAreBounded(t *testing.T) {
	h := openHome(t, t.TempDir(), sandbox.Options{Limits: sandbox.Limits{Workspaces: 2}})
	ctx, a := t.Context(), sandbox.Access{Session: "a"}
	for _, name := range []string{"a-1", "a-2"} {
		if _, err := h.Create(ctx, sandbox.CreateRequest{Access: a, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := h.Snapshot(ctx, sandbox.SnapshotRequest{Access: a, Workspace: "a-1"})
	if err != nil {
		t.Fatal(err)
	}
	for what, make := range map[string]func() error{
		"create":  func() error { _, err := h.Create(ctx, sandbox.CreateRequest{Access: a, Name: "a-3"}); return err },
		"fork":    func() error { _, err := h.Fork(ctx, sandbox.ForkRequest{Access: a, Workspace: "a-1"}); return err },
		"branch":  func() error { _, err := h.Branch(ctx, sandbox.RestoreRequest{Access: a, Snapshot: s.ID}); return err },
		"restore": func() error { _, err := h.Restore(ctx, sandbox.RestoreRequest{Access: a, Snapshot: s.ID}); return err },
	} {
		if err := make(); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if _, err := h.Create(ctx, sandbox.CreateRequest{Access: sandbox.Access{Session: "b"}, Name: "b"}); err != nil {
		t.Errorf("another session: %v", err)
	}
	if _, err := h.Destroy(ctx, sandbox.DestroyRequest{Access: a, Ref: "a-2", Now: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Fork(ctx, sandbox.ForkRequest{Access: a, Workspace: "a-1"}); err != nil {
		t.Errorf("when one is gone: %v", err)
	}
}

// TestCopiesKeepQuotas: what is made of a workspace with limits has these, and who is bound to a session gets no others
// that are larger.
func TestCopiesKeepQuotas(t *testing.T) {
	h := openHome(t, t.TempDir(), sandbox.Options{})
	a := sandbox.Access{Session: "a"}
	bound := caller.With(t.Context(), &caller.Caller{Session: "a", Sessions: []string{"a"}, Token: "t"})
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Access: a, Name: "w", Quota: api.Quota{Size: 1 << 20, Inodes: 100}}); err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Access: a, Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		ctx         context.Context //nolint:containedctx // of a row
		asked, want api.Quota
	}{
		{t.Context(), api.Quota{}, api.Quota{Size: 1 << 20, Inodes: 100}},
		{t.Context(), api.Quota{Size: 2 << 20}, api.Quota{Size: 2 << 20}},
		{bound, api.Quota{}, api.Quota{Size: 1 << 20, Inodes: 100}},
		{bound, api.Quota{Size: 2 << 20, Inodes: 50}, api.Quota{Size: 1 << 20, Inodes: 50}},
	} {
		fork, err := h.Fork(tc.ctx, sandbox.ForkRequest{Access: a, Workspace: "w", Quota: tc.asked})
		if err != nil || fork.Quota == nil || fork.Quota.Quota != tc.want {
			t.Errorf("fork with %+v: %+v, %v", tc.asked, fork.Quota, err)
		}
		made, err := h.Restore(tc.ctx, sandbox.RestoreRequest{Access: a, Snapshot: s.ID, Quota: tc.asked})
		if err != nil || made.Quota == nil || made.Quota.Quota != tc.want {
			t.Errorf("restored with %+v: %+v, %v", tc.asked, made.Quota, err)
		}
	}
}
