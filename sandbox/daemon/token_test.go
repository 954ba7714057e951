package daemon

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// wireCalls are the names of all calls, from the source of package wire.
func wireCalls(t *testing.T) (calls []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../api/wire/wire.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Call") || spec.Names[0].Name == "CallHeader" {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, value)
		return true
	})
	if len(calls) < 40 {
		t.Fatalf("only %d calls were found", len(calls))
	}
	return calls
}

// TestEveryCallIsForTokensOrNot: a call that somebody adds is in one of both tables, and in none by accident.
func TestEveryCallIsForTokensOrNot(t *testing.T) {
	known := map[string]bool{}
	for _, call := range wireCalls(t) {
		known[call] = true
		_, may := forToken[call]
		_, mayNot := notForToken[call]
		if may == mayNot {
			t.Errorf("%s: in forToken %v, in notForToken %v", call, may, mayNot)
		}
		if may && !forBound[call] {
			t.Errorf("%s is for tokens, and not for users that are bound to a session", call)
		}
	}
	for call := range forToken {
		if !known[call] {
			t.Errorf("forToken has %s, which is no call", call)
		}
	}
	for call, why := range notForToken {
		if !known[call] || why == "" {
			t.Errorf("notForToken has %s: %q", call, why)
		}
	}
}

// TestTokensNameNothingOfTheHost: every field that leads out of the home is refused, and what is in the home is not.
func TestTokensNameNothingOfTheHost(t *testing.T) {
	who := &asker{network: true, token: &api.Token{ID: "t", Scopes: api.AllScopes()}, sessions: []string{"a"}}
	for _, tc := range []struct {
		call    string
		request any
		ok      bool
	}{
		{wire.CallCreate, &sandbox.CreateRequest{Source: "w:first"}, true},
		{wire.CallCreate, &sandbox.CreateRequest{Source: "/etc"}, false},
		{wire.CallCreate, &sandbox.CreateRequest{Source: "./x"}, false},
		{wire.CallCreate, &sandbox.CreateRequest{Source: "/mnt:first"}, false},
		{wire.CallCreate, &sandbox.CreateRequest{Source: "docker-archive:/srv/image.tar"}, false},
		{wire.CallCreate, &sandbox.CreateRequest{Source: "oci-archive:/srv/image.tar:tag"}, false},
		{wire.CallCreate, &sandbox.CreateRequest{Source: "oci:/srv/layout@sha256:" + strings.Repeat("a", 64)}, false},
		{wire.CallCreate, &sandbox.CreateRequest{Source: "oci:../layout"}, false},
		{wire.CallCreate, &sandbox.CreateRequest{Source: "/srv/backups/x/meta.json", Expired: true}, false},
		{wire.CallUp, &sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Source: "oci:/srv/layout"}}, false},
		{wire.CallExport, &sandbox.ExportRequest{Format: api.FormatBackup, Path: "/srv"}, false},
		{wire.CallExport, &sandbox.ExportRequest{Format: api.FormatDocker}, false},
		{wire.CallUp, &sandbox.UpRequest{CreateRequest: sandbox.CreateRequest{Source: "/etc"}}, false},
		{wire.CallSnapshot, &sandbox.SnapshotRequest{Consistent: true}, true},
		{wire.CallSnapshot, &sandbox.SnapshotRequest{Cgroup: "/sys/fs/cgroup/x"}, false},
		{wire.CallPause, &sandbox.PauseRequest{Cgroup: "/sys/fs/cgroup/x"}, false},
		{wire.CallRestore, &sandbox.RestoreRequest{Name: "x"}, true},
		{wire.CallRestore, &sandbox.RestoreRequest{Mountpoint: "/mnt"}, false},
		{wire.CallBranch, &sandbox.RestoreRequest{Mountpoint: "mnt"}, false},
		{wire.CallFork, &sandbox.ForkRequest{Mountpoint: "/mnt"}, false},
		{wire.CallApply, &sandbox.ApplyRequest{From: "a", To: "b"}, true},
		{wire.CallApply, &sandbox.ApplyRequest{From: "a", To: "/srv"}, false},
		{wire.CallApply, &sandbox.ApplyRequest{Inode: "1:2"}, false},
		{wire.CallApply, &sandbox.ApplyRequest{Drop: "x"}, false},
		{wire.CallExport, &sandbox.ExportRequest{Stream: true}, true},
		{wire.CallExport, &sandbox.ExportRequest{Stream: true, Path: "/x"}, false},
		{wire.CallExport, &sandbox.ExportRequest{}, false},
		{wire.CallExtract, &sandbox.ExtractRequest{}, false},
		{"new", &sandbox.ListRequest{}, false},
	} {
		err := who.admit(wire.Route(tc.call), tc.request)
		if tc.ok && err != nil || !tc.ok && !errors.Is(err, sandbox.ErrRefused) {
			t.Errorf("%s %+v: %v", tc.call, tc.request, err)
		}
	}
}
