package daemon

import (
	"context"
	"net/http"
	"os"

	"snapfs/sandbox"
)

// routes maps the calls to the home's methods.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	add := func(call string, h http.HandlerFunc) { mux.HandleFunc("POST "+route(call), h) }
	h := s.home

	add(callCreate, handle(s, func(ctx context.Context, r sandbox.CreateRequest, out *stream) (sandbox.Workspace, error) {
		r.Progress = out.progress()
		return h.Create(ctx, r)
	}))
	add(callUp, handle(s, func(ctx context.Context, r sandbox.UpRequest, out *stream) (sandbox.UpResult, error) {
		r.Progress = out.progress()
		return h.Up(ctx, r)
	}))
	add(callSnapshot, handle(s, func(ctx context.Context, r sandbox.SnapshotRequest, out *stream) (sandbox.Snapshot, error) {
		r.Progress = out.progress()
		return h.Snapshot(ctx, r)
	}))
	add(callExport, handle(s, func(ctx context.Context, r sandbox.ExportRequest, out *stream) (sandbox.ExportResult, error) {
		r.Progress = out.progress()
		return h.Export(ctx, r)
	}))
	add(callGC, handle(s, func(ctx context.Context, r sandbox.GCRequest, out *stream) (sandbox.GCResult, error) {
		r.Progress = out.progress()
		return h.GC(ctx, r)
	}))
	add(callCheck, handle(s, func(ctx context.Context, r sandbox.CheckRequest, out *stream) (sandbox.CheckResult, error) {
		r.Progress = out.progress()
		return h.Check(ctx, r)
	}))
	add(callDiff, handle(s, func(ctx context.Context, r sandbox.DiffRequest, out *stream) (none, error) {
		return none{}, h.Diff(ctx, r, func(c sandbox.Change) error { return out.send(frame{Change: &c}) })
	}))
	add(callEvents, handle(s, func(ctx context.Context, r sandbox.EventsRequest, out *stream) (none, error) {
		return none{}, h.Events(ctx, r, func(e sandbox.Event) error { return out.send(frame{Event: &e}) })
	}))
	add(callFork, handle(s, plain(h.Fork)))
	add(callRollback, handle(s, plain(h.Rollback)))
	add(callPause, handle(s, plain(h.Pause)))
	add(callResume, handle(s, plain(h.Resume)))
	add(callPrune, handle(s, plain(h.Prune)))
	add(callMount, handle(s, plain(h.Mount)))
	add(callUnmount, handle(s, plain(h.Unmount)))
	add(callRestore, handle(s, plain(h.Restore)))
	add(callBranch, handle(s, plain(h.Branch)))
	add(callWorkspaces, handle(s, plain(h.Workspaces)))
	add(callSnapshots, handle(s, plain(h.Snapshots)))
	add(callShow, handle(s, plain(h.Show)))
	add(callStats, handle(s, plain(h.Stats)))
	add(callDelete, handle(s, silent(h.Delete)))
	add(callDestroy, handle(s, silent(h.Destroy)))

	add(callInfo, handle(s, func(context.Context, none, *stream) (Info, error) {
		return Info{PID: os.Getpid(), Home: h.Dir(), Version: s.version, Mounts: h.Mounts(), Background: h.Background()}, nil
	}))
	add(callCancel, handle(s, plain(s.interrupt)))
	add(callStop, s.handleStop)
	return mux
}

// plain is a method without progress.
func plain[Req, Res any](fn func(context.Context, Req) (Res, error)) func(context.Context, Req, *stream) (Res, error) {
	return func(ctx context.Context, r Req, _ *stream) (Res, error) { return fn(ctx, r) }
}

// silent is a method without a result.
func silent[Req any](fn func(context.Context, Req) error) func(context.Context, Req, *stream) (none, error) {
	return func(ctx context.Context, r Req, _ *stream) (none, error) { return none{}, fn(ctx, r) }
}

// handleStop ends the server and answers when the home is closed. It is no call that the end waits for.
func (s *server) handleStop(w http.ResponseWriter, r *http.Request) {
	out := newStream(w)
	if !mayAsk(r) {
		_ = out.send(frame{Error: toWire(errStranger)}) // whether it reads the answer is its business
		return
	}
	s.stop()
	<-s.closed
	if s.closeErr != nil {
		_ = out.send(frame{Error: toWire(s.closeErr)}) // the client may be gone; Serve returns the error, too
		return
	}
	_ = out.send(frame{Result: none{}}) // the client may be gone
}
