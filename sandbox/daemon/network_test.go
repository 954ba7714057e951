package daemon_test

import (
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/daemon/daemontest"
)

func TestTokenCalls(t *testing.T) {
	s := daemontest.Start(t, nil)
	a, reads := s.Token(t, "a"), s.Token(t, "a", sandbox.ScopeRead)
	other := s.Token(t, "b")
	if r := s.Call(t, wire.CallCreate, a.Secret, sandbox.CreateRequest{Name: "w"}); r.Status != 200 {
		t.Fatalf("create: %d %s", r.Status, r.Body)
	}
	if w, err := s.Show(t.Context(), sandbox.RefRequest{Access: sandbox.Access{Session: "a"}, Ref: "w"}); err != nil || w.Workspace.Session != "a" {
		t.Errorf("on the socket: %+v, %v", w, err)
	}
	show := sandbox.RefRequest{Ref: "w"}
	for _, tc := range []struct {
		what    string
		call    string
		secret  string
		request any
		status  int
		class   string
	}{
		{"its own", wire.CallShow, a.Secret, show, 200, ""},
		{"only reads", wire.CallShow, reads.Secret, show, 200, ""},
		{"of another session", wire.CallShow, other.Secret, show, 404, "not_found"},
		{"as another session", wire.CallShow, other.Secret, sandbox.RefRequest{Access: sandbox.Access{Session: "a"}, Ref: "w"}, 403, "refused"},
		{"across", wire.CallShow, other.Secret, sandbox.RefRequest{Access: sandbox.Access{AllowCrossSession: true}, Ref: "w"}, 403, "refused"},
		{"without a scope", wire.CallSnapshot, reads.Secret, sandbox.SnapshotRequest{Workspace: "w"}, 403, "refused"},
		{"with it", wire.CallSnapshot, a.Secret, sandbox.SnapshotRequest{Workspace: "w", Name: "first"}, 200, ""},
		{"a name that is taken", wire.CallSnapshot, a.Secret, sandbox.SnapshotRequest{Workspace: "w", Name: "first"}, 409, "conflict"},
		{"a directory of the host", wire.CallCreate, a.Secret, sandbox.CreateRequest{Name: "v", Source: "/etc"}, 403, "refused"},
		{"a mountpoint", wire.CallFork, a.Secret, sandbox.ForkRequest{Workspace: "w", Mountpoint: "/mnt"}, 403, "refused"},
		{"a path as a name", wire.CallShow, a.Secret, sandbox.RefRequest{Ref: "/mnt"}, 403, "refused"},
		{"a file of the host", wire.CallExport, a.Secret, sandbox.ExportRequest{Snapshot: "w:first", Path: "/tmp/x"}, 403, "refused"},
		{"mount", wire.CallMount, a.Secret, sandbox.MountRequest{Workspace: "w", Mountpoint: "/mnt"}, 403, "refused"},
		{"locate", wire.CallLocate, a.Secret, sandbox.LocateRequest{Path: "/"}, 403, "refused"},
		{"gc", wire.CallGC, a.Secret, sandbox.GCRequest{}, 403, "refused"},
		{"stop", wire.CallStop, a.Secret, wire.StopRequest{}, 403, "refused"},
		{"a token", wire.CallTokenNew, a.Secret, sandbox.TokenRequest{}, 403, "refused"},
		{"nobody", wire.CallShow, "", show, 401, "refused"},
		{"a wrong token", wire.CallShow, a.Secret[:len(a.Secret)-3] + "AAA", show, 401, "refused"},
		{"no token by its form", wire.CallShow, "hello", show, 401, "refused"},
	} {
		r := s.Call(t, tc.call, tc.secret, tc.request)
		if r.Status != tc.status {
			t.Errorf("%s: status %d, want %d: %s", tc.what, r.Status, tc.status, r.Body)
		}
		if tc.status == 200 {
			continue
		}
		e := r.Error(t)
		if e == nil || e.Class != tc.class || e.Request == "" || e.Request != r.Header.Get("X-Request-Id") {
			t.Errorf("%s: error %+v of request %s", tc.what, e, r.Header.Get("X-Request-Id"))
		}
		if challenge := r.Header.Get("WWW-Authenticate"); (challenge != "") != (tc.status == 401) {
			t.Errorf("%s: WWW-Authenticate %q", tc.what, challenge)
		}
	}
	if err := s.RevokeToken(t.Context(), sandbox.RefRequest{Access: sandbox.Access{Session: "a"}, Ref: a.ID}); err != nil {
		t.Fatal(err)
	}
	if r := s.Call(t, wire.CallShow, a.Secret, show); r.Status != 401 {
		t.Errorf("revoked: %d %s", r.Status, r.Body)
	}
}
