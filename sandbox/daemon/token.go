package daemon

import (
	"fmt"
	"slices"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// tokenCall says what a call needs of a token.
type tokenCall struct {
	scopes []api.Scope
	// host gives the fields of a request that name something of the host, such as a path, in pairs of name and value; nil:
	// it has none. Who has a token is no user of the host, and must leave them empty.
	host func(request any) []string
}

// forToken has the calls that a token may make. Paths, processes and mounts of the host are not for it: what reads or
// writes there is in notForToken, or has fields that must be empty.
var forToken = map[string]tokenCall{
	wire.CallCreate: {workspaceScope, func(r any) []string { return hostPath("source", r.(*sandbox.CreateRequest).Source) }},
	wire.CallUp:     {workspaceScope, func(r any) []string { return hostPath("source", r.(*sandbox.UpRequest).Source) }},
	wire.CallSnapshot: {snapshotScope, func(r any) []string {
		return []string{"cgroup", r.(*sandbox.SnapshotRequest).Cgroup}
	}},
	wire.CallRestore: {workspaceScope, func(r any) []string {
		return []string{"mountpoint", r.(*sandbox.RestoreRequest).Mountpoint}
	}},
	wire.CallBranch: {workspaceScope, func(r any) []string {
		return []string{"mountpoint", r.(*sandbox.RestoreRequest).Mountpoint}
	}},
	wire.CallFork: {workspaceScope, func(r any) []string {
		return []string{"mountpoint", r.(*sandbox.ForkRequest).Mountpoint}
	}},
	wire.CallPause: {workspaceScope, func(r any) []string { return []string{"cgroup", r.(*sandbox.PauseRequest).Cgroup} }},
	wire.CallApply: {snapshotScope, func(r any) []string {
		a := r.(*sandbox.ApplyRequest)
		return append(hostPath("to", a.To), "inode", a.Inode, "drop", a.Drop)
	}},
	wire.CallExport: {readScope, func(r any) []string {
		e := r.(*sandbox.ExportRequest)
		if !e.Stream {
			return []string{"path", "of the daemon's choice"}
		}
		return []string{"path", e.Path}
	}},

	wire.CallRollback: {scopes: snapshotScope}, wire.CallTurn: {scopes: snapshotScope}, wire.CallUndo: {scopes: snapshotScope},
	wire.CallRedo: {scopes: snapshotScope}, wire.CallDelete: {scopes: snapshotScope}, wire.CallPrune: {scopes: snapshotScope},
	wire.CallLabel: {scopes: workspaceScope}, wire.CallResume: {scopes: workspaceScope}, wire.CallDestroy: {scopes: workspaceScope},
	wire.CallRename: {scopes: slices.Concat(workspaceScope, snapshotScope)}, // it is known later which of both it is
	wire.CallTurns:  {scopes: readScope}, wire.CallBase: {scopes: readScope}, wire.CallConflicts: {scopes: readScope},
	wire.CallReads: {scopes: readScope}, wire.CallWorkspaces: {scopes: readScope}, wire.CallSnapshots: {scopes: readScope},
	wire.CallShow: {scopes: readScope}, wire.CallDiff: {scopes: readScope}, wire.CallFiles: {scopes: readScope},
	wire.CallRead: {scopes: readScope}, wire.CallStats: {scopes: readScope}, wire.CallEvents: {scopes: readScope},
	wire.CallStatFile: {scopes: readScope}, wire.CallListDir: {scopes: readScope}, wire.CallGetFile: {scopes: readScope},
	wire.CallGlob: {scopes: readScope}, wire.CallGrep: {scopes: readScope}, wire.CallWatchFiles: {scopes: readScope},
	wire.CallPutFile: {scopes: writeScope}, wire.CallEditFile: {scopes: writeScope}, wire.CallMakeDir: {scopes: writeScope},
	wire.CallMoveFile: {scopes: writeScope}, wire.CallRemoveFile: {scopes: writeScope},
	wire.CallPosition: {scopes: readScope}, wire.CallSetPosition: {scopes: workspaceScope},
	wire.CallSaveDocument: {scopes: snapshotScope}, wire.CallDeleteDocument: {scopes: snapshotScope},
	wire.CallDeleteAgentSession: {scopes: snapshotScope},
	wire.CallLoadDocument:       {scopes: readScope}, wire.CallListDocuments: {scopes: readScope},
	wire.CallInfo: {}, wire.CallCancel: {},
}

// notForToken has the other calls, and why no token may make them.
var notForToken = map[string]string{
	wire.CallMount: "it is about directories of the host", wire.CallUnmount: "it is about directories of the host",
	wire.CallLocate: "it is about directories of the host", wire.CallExtract: "it is about directories of the host",
	wire.CallGC: "it is about all sessions", wire.CallCheck: "it is about all sessions", wire.CallInUse: "it is about all sessions",
	wire.CallQuota:  "limits are for who runs the daemon to change",
	wire.CallReload: "it is about the daemon", wire.CallStop: "it is about the daemon",
	wire.CallTokenNew: "it is about tokens", wire.CallTokens: "it is about tokens", wire.CallTokenEnd: "it is about tokens",
}

var (
	readScope      = []api.Scope{api.ScopeRead}
	writeScope     = []api.Scope{api.ScopeWrite}
	snapshotScope  = []api.Scope{api.ScopeSnapshots}
	workspaceScope = []api.Scope{api.ScopeWorkspaces}
)

// hostPath is the field of a request that may be a path of the host, if it is one.
func hostPath(field, value string) []string {
	if api.IsPath(value) {
		return []string{field, value}
	}
	return nil
}

// admitToken checks what who has a token may ask for.
func (a *asker) admitToken(call string, request any) error {
	c, ok := forToken[call]
	if !ok {
		return fmt.Errorf("%w: no token may call %s: %s", sandbox.ErrRefused, call, notForToken[call])
	}
	for _, s := range c.scopes {
		if !slices.Contains(a.token.Scopes, s) {
			return fmt.Errorf("%w: the token lacks the scope %s, which %s needs", sandbox.ErrRefused, s, call)
		}
	}
	if c.host == nil {
		return nil
	}
	for field := range slices.Chunk(c.host(request), 2) {
		if field[1] != "" {
			return fmt.Errorf("%w: %s is of the host, and who has a token may not name it: leave it out", sandbox.ErrRefused, field[0])
		}
	}
	return nil
}
