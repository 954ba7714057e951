package daemon

import (
	"fmt"
	"strings"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

// A bound user may make these calls, for its sessions. Those that are not here are about all sessions, or about the
// daemon: gc, check, stop.
var forBound = map[string]bool{
	wire.CallCreate: true, wire.CallUp: true, wire.CallMount: true, wire.CallUnmount: true, wire.CallSnapshot: true,
	wire.CallRestore: true, wire.CallBranch: true, wire.CallFork: true, wire.CallRollback: true, wire.CallPause: true,
	wire.CallTurn: true, wire.CallTurns: true, wire.CallUndo: true, wire.CallRedo: true, wire.CallApply: true,
	wire.CallBase: true, wire.CallConflicts: true, wire.CallReads: true,
	wire.CallResume: true, wire.CallWorkspaces: true, wire.CallSnapshots: true, wire.CallShow: true,
	wire.CallPosition: true, wire.CallSetPosition: true,
	wire.CallLocate: true, wire.CallRename: true, wire.CallLabel: true, wire.CallDiff: true, wire.CallFiles: true,
	wire.CallRead: true, wire.CallDelete: true, wire.CallDestroy: true,
	wire.CallExport: true, wire.CallExtract: true, wire.CallStats: true, wire.CallPrune: true, wire.CallEvents: true,
	wire.CallStatFile: true, wire.CallListDir: true, wire.CallGetFile: true, wire.CallPutFile: true,
	wire.CallEditFile: true, wire.CallMakeDir: true, wire.CallMoveFile: true, wire.CallRemoveFile: true,
	wire.CallGlob: true, wire.CallGrep: true, wire.CallWatchFiles: true,
	wire.CallSaveDocument: true, wire.CallLoadDocument: true, wire.CallListDocuments: true,
	wire.CallDeleteDocument: true, wire.CallDeleteAgentSession: true,
	wire.CallInfo: true, wire.CallCancel: true, // these two answer it less
}

// errStranger is what another user's process gets.
var errStranger = fmt.Errorf("%w: only root, the daemon's own user and those that 'snapfs serve --socket-group' or "+
	"'--allow' names may use this socket", sandbox.ErrRefused)

// admit checks what a user may ask for by a route, and makes the request one of its sessions.
func (a *asker) admit(route string, request any) error {
	call := strings.TrimPrefix(route, wire.Route(""))
	switch {
	case a.trusted:
		return nil
	case len(a.sessions) == 0:
		return errStranger
	case a.token != nil:
		if err := a.admitToken(call, request); err != nil {
			return err
		}
	case !forBound[call]:
		return fmt.Errorf("%w: %s is about all sessions, and %s is bound to %s: ask who runs the daemon",
			sandbox.ErrRefused, call, a.name(), a.caller().Bound())
	}
	if r, ok := request.(interface{ Asker() *api.Access }); ok {
		if err := a.caller().Bind(r.Asker()); err != nil {
			return err
		}
	} else if call != wire.CallInfo && call != wire.CallCancel {
		return fmt.Errorf("%w: %s does not say for which session", sandbox.ErrRefused, call)
	}
	if r, ok := request.(*sandbox.StatsRequest); ok && r.Ref == "" {
		r.OfSession = true // not of the home
	}
	return nil
}
