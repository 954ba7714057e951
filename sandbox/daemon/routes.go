package daemon

import (
	"context"
	"net/http"
	"os"

	"snapfs/sandbox"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
)

// routes maps the calls to the home's methods.
func (s *server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	add := func(call string, h http.HandlerFunc) { mux.HandleFunc("POST "+wire.Route(call), s.negotiate(h)) }
	h := s.home

	add(wire.CallCreate, handle(s, func(
		ctx context.Context, r sandbox.CreateRequest, out *stream,
	) (sandbox.Workspace, error) {
		r.Progress = out.progress()
		return h.Create(ctx, r)
	}))
	add(wire.CallUp, handle(s, func(ctx context.Context, r sandbox.UpRequest, out *stream) (sandbox.UpResult, error) {
		r.Progress = out.progress()
		return h.Up(ctx, r)
	}))
	add(wire.CallSnapshot, handle(s, func(
		ctx context.Context, r sandbox.SnapshotRequest, out *stream,
	) (sandbox.Snapshot, error) {
		r.Progress = out.progress()
		return h.Snapshot(ctx, r)
	}))
	add(wire.CallExport, handle(s, func(
		ctx context.Context, r sandbox.ExportRequest, out *stream,
	) (sandbox.ExportResult, error) {
		r.Progress = out.progress()
		if r.Stream {
			r.Writer, r.Stream = dataWriter{out}, false
		}
		return h.Export(ctx, r)
	}))
	add(wire.CallExtract, handle(s, func(
		ctx context.Context, r sandbox.ExtractRequest, out *stream,
	) (sandbox.ExtractResult, error) {
		r.Progress = out.progress()
		return h.Extract(ctx, r)
	}))
	add(wire.CallGC, handle(s, func(ctx context.Context, r sandbox.GCRequest, out *stream) (sandbox.GCResult, error) {
		r.Progress = out.progress()
		return h.GC(ctx, r)
	}))
	add(wire.CallCheck, handle(s, func(
		ctx context.Context, r sandbox.CheckRequest, out *stream,
	) (sandbox.CheckResult, error) {
		r.Progress = out.progress()
		return h.Check(ctx, r)
	}))
	add(wire.CallDiff, handle(s, func(ctx context.Context, r sandbox.DiffRequest, out *stream) (wire.None, error) {
		r.Progress = out.progress()
		if r.WithContents {
			r.Contents, r.WithContents = dataWriter{out}, false
		}
		return wire.None{}, h.Diff(ctx, r, func(c sandbox.Change) error { return out.send(wire.Frame{Change: &c}) })
	}))
	add(wire.CallFiles, handle(s, func(ctx context.Context, r sandbox.FilesRequest, out *stream) (wire.None, error) {
		return wire.None{}, h.Files(ctx, r, func(f sandbox.File) error { return out.send(wire.Frame{File: &f}) })
	}))
	add(wire.CallRead, handle(s, func(ctx context.Context, r sandbox.FilesRequest, out *stream) (sandbox.File, error) {
		return h.ReadFile(ctx, r, out.data())
	}))
	add(wire.CallEvents, handle(s, func(ctx context.Context, r sandbox.EventsRequest, out *stream) (wire.None, error) {
		return wire.None{}, h.Events(ctx, r, func(e sandbox.Event) error { return out.send(wire.Frame{Event: &e}) })
	}))
	add(wire.CallFork, handle(s, plain(h.Fork)))
	add(wire.CallRollback, handle(s, plain(h.Rollback)))
	add(wire.CallTurn, handle(s, plain(h.Turn)))
	add(wire.CallTurns, handle(s, plain(h.Turns)))
	add(wire.CallUndo, handle(s, plain(h.Undo)))
	add(wire.CallRedo, handle(s, plain(h.Redo)))
	add(wire.CallApply, handle(s, func(
		ctx context.Context, r sandbox.ApplyRequest, out *stream,
	) (sandbox.ApplyResult, error) {
		r.Progress = out.progress()
		return h.Apply(ctx, r)
	}))
	add(wire.CallBase, handle(s, func(ctx context.Context, r sandbox.BaseRequest, out *stream) (sandbox.BaseResult, error) {
		r.Progress = out.progress()
		return h.Base(ctx, r)
	}))
	add(wire.CallConflicts, handle(s, plain(h.Conflicts)))
	add(wire.CallReads, handle(s, func(
		ctx context.Context, r sandbox.RefRequest, out *stream,
	) (sandbox.ReadsResult, error) {
		return h.Reads(ctx, r, func(x sandbox.Read) error { return out.send(wire.Frame{Read: &x}) })
	}))
	add(wire.CallPosition, handle(s, plain(h.Position)))
	add(wire.CallSetPosition, handle(s, plain(h.SetPosition)))
	add(wire.CallQuota, handle(s, plain(h.SetQuota)))
	add(wire.CallPause, handle(s, plain(h.Pause)))
	add(wire.CallResume, handle(s, plain(h.Resume)))
	add(wire.CallPrune, handle(s, plain(h.Prune)))
	add(wire.CallMount, handle(s, plain(h.Mount)))
	add(wire.CallUnmount, handle(s, plain(h.Unmount)))
	add(wire.CallRestore, handle(s, plain(h.Restore)))
	add(wire.CallBranch, handle(s, plain(h.Branch)))
	add(wire.CallWorkspaces, handle(s, plain(h.Workspaces)))
	add(wire.CallSnapshots, handle(s, plain(h.Snapshots)))
	add(wire.CallShow, handle(s, plain(h.Show)))
	add(wire.CallLocate, handle(s, plain(h.Locate)))
	add(wire.CallRename, handle(s, plain(h.Rename)))
	add(wire.CallLabel, handle(s, plain(h.Label)))
	add(wire.CallStats, handle(s, plain(h.Stats)))
	add(wire.CallDelete, handle(s, silent(h.Delete)))
	add(wire.CallDestroy, handle(s, plain(h.Destroy)))

	s.fileRoutes(add)
	s.documentRoutes(add)

	add(wire.CallInfo, handle(s, func(ctx context.Context, _ wire.None, _ *stream) (wire.Info, error) {
		by := caller.From(ctx)
		info := wire.Info{Version: s.Version, Protocol: wire.Speaks.String()}
		if !by.Remotely() { // else paths and processes of the host mean nothing to it
			info.PID, info.Home, info.Log = os.Getpid(), h.Dir(), s.Log
		}
		if by.Trusted { // else what others do is not its business
			info.Mounts, info.Background, info.Listen = h.Mounts(), h.Background(), append(s.Network.URLs(), s.Socket.urls()...)
			if s.Holder != nil {
				info.Holder = s.Holder()
			}
		}
		return info, nil
	}))
	add(wire.CallCancel, handle(s, plain(s.interrupt)))
	add(wire.CallReload, handle(s, func(context.Context, wire.None, *stream) (wire.None, error) {
		if s.Reload == nil {
			return wire.None{}, wire.Unavailable("the program that serves %s has no settings to read", h.Dir())
		}
		return wire.None{}, s.Reload()
	}))
	add(wire.CallInUse, handle(s, func(ctx context.Context, _ wire.None, _ *stream) (wire.InUse, error) {
		busy, err := h.Busy(ctx)
		used := wire.InUse{Mounts: make([]wire.UsedMount, 0, len(busy))}
		for _, b := range busy {
			used.Mounts = append(used.Mounts, wire.UsedMount(b))
		}
		return used, err
	}))
	add(wire.CallTokenNew, handle(s, plain(h.CreateToken)))
	add(wire.CallTokens, handle(s, plain(h.Tokens)))
	add(wire.CallTokenEnd, handle(s, silent(h.RevokeToken)))
	add(wire.CallStop, s.handleStop)
	for _, v := range append([]Service{s.eventService(), s.metricService()}, s.Services...) {
		mux.HandleFunc(v.Pattern, s.serve(v))
	}
	mux.Handle("/", http.NotFoundHandler()) // front answers before that
	s.mux = mux
	return mux
}

// plain is a method without progress.
func plain[Req, Res any](fn func(context.Context, Req) (Res, error)) func(context.Context, Req, *stream) (Res, error) {
	return func(ctx context.Context, r Req, _ *stream) (Res, error) { return fn(ctx, r) }
}

// silent is a method without a result.
func silent[Req any](fn func(context.Context, Req) error) func(context.Context, Req, *stream) (wire.None, error) {
	return func(ctx context.Context, r Req, _ *stream) (wire.None, error) { return wire.None{}, fn(ctx, r) }
}
