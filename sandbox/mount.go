package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	snapfuse "snapfs/fs"
	"snapfs/internal/hosttree"
	"snapfs/internal/livestate"
	"snapfs/internal/readset"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/mountns"
	"snapfs/sandbox/internal/peer"
)

// Mount shows a workspace at a mountpoint, or with ReadOnly a snapshot. Mounting it there again with the same options
// changes nothing and succeeds. ErrConflict if a workspace is mounted otherwise, or if the mountpoint is in use.
func (h *Home) Mount(ctx context.Context, r MountRequest) (Workspace, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Workspace{}, err
	}
	defer end()
	if err := validMountOptions(r.MountOptions); err != nil {
		return Workspace{}, err
	}
	w, s, err := h.useMountable(ctx, r)
	if err != nil {
		return Workspace{}, err
	}
	if s != nil {
		return h.mountSnapshot(ctx, r, s)
	}
	unlock, err := h.ops.Lock(ctx, w.ID)
	if err != nil {
		return Workspace{}, err
	}
	defer unlock()
	session, err := r.SessionID()
	if err != nil {
		return Workspace{}, err
	}
	if len(r.Remount) > 0 {
		if err := h.remountLocked(ctx, w, session, r.Mountpoint, r.Remount); err != nil {
			return Workspace{}, err
		}
		return h.describe(h.catalog.Workspace(w.ID))
	}
	if r.Mountpoint == "" {
		if w.Mount == nil {
			return Workspace{}, fmt.Errorf("%w: workspace %s was never mounted: name a mountpoint", ErrInvalid, w.ID)
		}
		if caller.From(ctx).Remotely() {
			return Workspace{}, fmt.Errorf("%w: where workspace %s was mounted is for users of this machine to mount it again",
				ErrRefused, w.ID)
		}
		r.Mountpoint = w.Mount.Mountpoint
	}
	return h.mountNamed(ctx, w.ID, session, r)
}

// useMountable finds what a request is to mount: a workspace, or for a mount that is read-only a snapshot.
func (h *Home) useMountable(ctx context.Context, r MountRequest) (*catalog.Workspace, *catalog.Snapshot, error) {
	if r.ReadOnly && len(r.Remount) == 0 {
		return h.useObject(ctx, r.Access, r.Workspace, "mount")
	}
	w, err := h.useWorkspace(ctx, r.Access, r.Workspace, "mount")
	if !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrInvalid) || len(r.Remount) > 0 { // app:built is no name of one
		return w, nil, err
	}
	who, badSession := newAsker(ctx, r.Access)
	if badSession != nil {
		return nil, nil, badSession
	}
	if s, _ := h.findSnapshot(who, nil, r.Workspace); s != nil {
		err = fmt.Errorf("%w: %s is a snapshot: mount it with --read-only, or make a workspace of it "+
			"('snapfs branch')", ErrInvalid, fullName(s))
	}
	return nil, nil, err
}

// mountNamed mounts a workspace as a request says. The caller holds its lock.
func (h *Home) mountNamed(ctx context.Context, name, session string, r MountRequest) (Workspace, error) {
	if err := h.mountLocked(ctx, name, session, r.Mountpoint, r.MakeMountpoint, r.MountOptions); err != nil {
		return Workspace{}, err
	}
	return h.describe(h.catalog.Workspace(name))
}

// mountLocked mounts a workspace, and records events with that. The caller holds its lock.
func (h *Home) mountLocked(
	ctx context.Context, name, session, mountpoint string, makeIt bool, opts MountOptions, events ...Event,
) error {
	w := h.catalog.Workspace(name)
	if w == nil {
		return fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
	}
	if !opts.ReadOnly {
		if err := h.changeable(w); err != nil {
			return err
		}
	}
	ctx, opts, err := mountFor(ctx, w, mountpoint, opts)
	if err != nil {
		return err
	}
	at, mounts, err := h.mountTarget(ctx, w, mountpoint)
	if err != nil {
		return err
	}
	if l := h.liveOf(w.ID); l != nil && l.state(mounts) == Detached && mountns.Enabled() && peer.From(ctx) == nil {
		return h.rejoin(ctx, w, l, session, at, makeIt, opts, events)
	}
	if done, err := h.alreadyMounted(w, at, mounts, opts); done || err != nil {
		return err
	}
	location, err := h.choose(ctx, w, at, mounts, makeIt)
	if err != nil {
		return err
	}
	if err := h.mountAt(ctx, w, session, location, opts, events); err != nil {
		location.leave()
		return err
	}
	if l := h.importing(w.Base); l != nil {
		h.storer.Retry(l.ID) // what could not be read may be readable now
	}
	return nil
}

// choose decides that a workspace is mounted at a place, and makes its last element if that is wanted. A place where it
// was to be mounted again before is given up.
func (h *Home) choose(
	ctx context.Context, w *catalog.Workspace, at location, mounts mountTable, makeIt bool,
) (mountLocation, error) {
	if err := h.apartFromImports(ctx, at); err != nil {
		return mountLocation{}, err
	}
	if m := w.Mount; m != nil && m.Mountpoint == at.path {
		makeIt = makeIt || m.Made
	}
	var made bool
	err := asUser(ctx, func() (err error) {
		made, err = h.checkMountpoint(at, mounts, makeIt)
		return err
	})
	if err != nil {
		return mountLocation{}, err
	}
	if w.Mount != nil && w.Mount.Mounted && w.Mount.Mountpoint != at.path {
		h.vacate(w.Mount)
	}
	l := h.prepare(ctx, w, at, made)
	if err := l.open(); err != nil {
		l.leave()
		return mountLocation{}, err
	}
	return l, nil
}

// locationFor finds, or makes, the directory on which a workspace that has no connection is to be mounted.
func (h *Home) locationFor(
	ctx context.Context, w *catalog.Workspace, mountpoint string, makeIt bool,
) (mountLocation, error) {
	at, mounts, err := h.mountTarget(ctx, w, mountpoint)
	if err != nil {
		return mountLocation{}, err
	}
	return h.choose(ctx, w, at, mounts, makeIt)
}

// wanted is the record of a mount that is about to be made.
func (h *Home) wanted(at mountLocation, opts MountOptions) *catalog.Mount {
	return &catalog.Mount{
		Mountpoint: at.path, Options: opts, Mounted: true, Home: h.dir, Made: at.made, Guarded: at.guarded,
		By: at.by, Namespace: h.recorded(at.view), Apart: !at.view.own() && at.view.ns != h.ns,
		Nested: at.apart && at.view.own(),
	}
}

// mountTarget finds out where a mountpoint is, after taking away a dead mount of an earlier process that is still
// there.
func (h *Home) mountTarget(
	ctx context.Context, w *catalog.Workspace, mountpoint string,
) (at location, mounts mountTable, err error) {
	v, err := h.viewOf(ctx)
	if err != nil {
		return location{}, nil, err
	}
	if u := peer.From(ctx); u != nil && !v.own() {
		return location{}, nil, fmt.Errorf("%w: %s mounts in the mount namespace of the daemon only, and the command runs "+
			"in another one", ErrRefused, u)
	}
	if mounts, err = readMounts(); err != nil {
		return location{}, nil, err
	}
	l := h.liveOf(w.ID)
	// Of a mount that has just ended, the directory may be about to be removed.
	if l == nil && h.detachStale(w, mounts) || l != nil && l.state(mounts) == Unmounted {
		if mounts, err = readMounts(); err != nil {
			return location{}, nil, err
		}
	}
	if !v.own() {
		at, err = lookApart(ctx, v, mountpoint)
		return at, mounts, err
	}
	if err := h.makeServicePoints(ctx, mountpoint); err != nil {
		return location{}, nil, err
	}
	err = asUser(ctx, func() (err error) {
		at, err = h.locate(mountpoint, mounts)
		return err
	})
	if err == nil && at.inside != "" && at.inside != w.ID && mountns.Enabled() && peer.From(ctx) == nil {
		at, err = lookApart(ctx, v, mountpoint)
	}
	return at, mounts, err
}

// detachStale takes away the mount that a process which is gone has left for a workspace. Only the recorded path,
// type, source and device together make it ours, and that the home is not the copy of one that may be in use.
func (h *Home) detachStale(w *catalog.Workspace, mounts mountTable) bool {
	if w.Mount == nil || !w.Mount.Mounted || h.copied(w.Mount.Home) {
		return false
	}
	v, ok := h.viewRecorded(w.Mount)
	if !ok {
		return false
	}
	if !v.own() {
		var err error
		if mounts, err = v.mounts(); err != nil {
			return false
		}
	}
	e, ok := mounts.at(w.Mount.Mountpoint)
	if !ok || e.fstype != mountType || e.source != cmp.Or(w.Mount.Source, w.ID) || w.Mount.Device != "" && w.Mount.Device != e.device {
		return false
	}
	var err error
	found := true
	if v.own() && !w.Mount.Nested { // the mount in which it is may be served by this process
		found, err = snapfuse.Detach(e.point, deviceNumber(e.device))
	} else {
		_, err = v.run(context.WithoutCancel(h.ctx), mountns.Request{
			Do: mountns.Detach, Path: e.point, Device: deviceNumber(e.device), Lazy: true,
		})
	}
	if err == nil && !found {
		err = errors.New("it is beneath another one")
	}
	if err != nil {
		h.log.Warn("a dead mount is still there", "workspace", w.ID, "mountpoint", e.point, "error", err)
		return false
	}
	h.log.Info("took away the dead mount of an earlier process", "workspace", w.ID, "mountpoint", e.point)
	return true
}

// copied reports whether a home that was in a directory is still there, so that this one must be a copy.
func (h *Home) copied(from string) bool {
	if from == "" || from == h.dir {
		return false
	}
	_, err := os.Lstat(filepath.Join(from, markerName))
	return err == nil
}

// alreadyMounted decides what a second mount of a workspace means: done if it is what is there already.
func (h *Home) alreadyMounted(
	w *catalog.Workspace, at location, mounts mountTable, opts MountOptions,
) (done bool, err error) {
	l := h.liveOf(w.ID)
	if l == nil {
		return false, nil
	}
	switch state := l.state(mounts); {
	case state == Unmounted:
		return false, nil
	case state == Detached:
		return false, fmt.Errorf("%w: workspace %s is detached: %s",
			ErrConflict, w.ID, h.detachedHolder(l))
	case at.path != l.at().path || !sameNamespace(at.view, l.at().view):
		return false, fmt.Errorf("%w: workspace %s is mounted at %s: unmount it first", ErrConflict, w.ID, l.where())
	case !sameOptions(l, guarded(w, opts)):
		return false, fmt.Errorf("%w: workspace %s is mounted at %s with other options (%s): unmount it first, "+
			"or use -o remount", ErrConflict, w.ID, l.where(), optionList(l.options()))
	}
	return true, nil
}

// sameOptions compares what was asked with what is there; a transport left open is as the mount chose it.
func sameOptions(l *live, opts MountOptions) bool {
	have := l.options()
	if opts.Transport == "" || opts.Transport == "auto" || opts.Transport == l.mount.Transport() {
		have.Transport, opts.Transport = "", ""
	}
	return have == opts
}

func optionList(o MountOptions) string {
	list := "rw"
	if o.ReadOnly {
		list = "ro"
	}
	for _, opt := range []struct {
		set  bool
		name string
	}{
		{o.NoSUID, "nosuid"},
		{o.NoDev, "nodev"},
		{o.NoExec, "noexec"},
		{o.NoAtime, "noatime"},
		{o.Writeback, "writeback"},
		{o.AllowOther, "allow_other"},
		{o.TrackReads, "track_reads"},
	} {
		if opt.set {
			list += "," + opt.name
		}
	}
	if o.Engine != "" {
		list += ",engine=" + o.Engine
	}
	if o.Transport != "" {
		list += ",transport=" + o.Transport
	}
	return list
}

// checkMountpoint makes sure that something can be mounted at a path, and makes its last element if that is wanted.
func (h *Home) checkMountpoint(at location, mounts mountTable, makeIt bool) (made bool, err error) {
	switch {
	case at.apart && at.covered:
		return false, fmt.Errorf("%w: %s is a mountpoint already: unmount that first, or choose another place",
			ErrConflict, at.path)
	case at.apart && at.missing > 0 && makeIt:
		return false, nil // by the process that mounts
	case at.inside != "":
		return false, fmt.Errorf("%w: %s is inside the mount of workspace %s: choose a place outside",
			ErrConflict, at.path, at.inside)
	case at.view.own() && below(at.path, h.dir) && !h.isServicePoint(at.path):
		return false, fmt.Errorf("%w: %s is inside the home %s: choose a place outside", ErrConflict, at.path, h.dir)
	case at.view.own() && below(h.dir, at.path):
		return false, fmt.Errorf("%w: a mount at %s would hide the home %s: choose another place",
			ErrConflict, at.path, h.dir)
	case at.missing == 1 && makeIt:
		if err := hosttree.Mkdir(at.path, 0o755); err != nil {
			return false, pathError(at.path, err)
		}
		return true, nil
	case at.missing > 0:
		return false, fmt.Errorf("%w: mountpoint %s does not exist: make it first", ErrNotFound, at.path)
	case at.apart && !at.dir || !at.apart && !at.info.IsDir():
		return false, fmt.Errorf("%w: mountpoint %s is not a directory", ErrInvalid, at.path)
	}
	if e, ok := mounts.at(at.path); ok && !at.apart {
		return false, fmt.Errorf("%w: %s is a mountpoint already (%s, %s): unmount that first, or choose another place",
			ErrConflict, at.path, e.fstype, e.source)
	}
	return false, nil
}

// mountAt mounts a workspace that has no connection at a path that was checked, and records events with that.
func (h *Home) mountAt(
	ctx context.Context, w *catalog.Workspace, session string, at mountLocation, opts MountOptions, events []Event,
) (err error) {
	if err := roomForMount(); err != nil {
		return err
	}
	if w, err = h.settled(ctx, w); err != nil {
		return err
	}
	if opts.Engine == api.EngineKernel {
		return h.mountKernelAt(ctx, w, session, at, opts, events)
	}
	state, err := h.newState(w.ID)
	if err != nil {
		return err
	}
	o, err := h.openToShow(ctx, w, opts, opts.ReadOnly, state)
	if err != nil {
		return err
	}
	// The intent is recorded first: whatever is found there after a crash is ours to take away.
	before, intent := w.Mount, h.wanted(at, opts)
	if before == nil || *before != *intent || o.record != w.Reads {
		if err := h.recordMount(ctx, w.ID, intent, o.record); err != nil {
			return errors.Join(err, o.abandon())
		}
	}
	asked := opts // what is recorded: mounted again, it depends on what the workspace is then
	opts = guarded(w, asked)
	h.guardLocation(at)
	defer at.close()
	how := attaching{owner: at.owner(), place: h.placer(ctx, &at), state: state}
	m, err := h.engine.mount(ctx, o.overlay, w.ID, at.path, opts, how)
	if err != nil {
		if err := h.recordMount(context.WithoutCancel(ctx), w.ID, before, o.record); err != nil {
			h.log.Warn("recording that a mount failed", "workspace", w.ID, "error", err)
		}
		return errors.Join(err, o.abandon())
	}
	h.points.At("mounted")
	l := h.show(w, o, m, w.ID, shown{at: at, options: opts, asked: asked})
	l.upper.Store(w.Upper)
	h.keep(l)
	if err := l.refresh(ctx, false); err != nil {
		h.log.Warn("a mount keeps using layers that were replaced", "workspace", w.ID, "error", err)
	}
	h.recordMounted(ctx, w.ID, session, l, events)
	return nil
}

// opened is a workspace that is about to have a connection.
type opened struct {
	home    *Home
	overlay *layers.Overlay
	frozen  bool
	stack   *layerstore.Stack
	reads   *readset.Set
	record  *catalog.Reads
	state   *livestate.State // nil: the connection ends with this process
}

// openToShow opens a workspace for a connection. The state belongs to what is opened, and is closed if that fails.
func (h *Home) openToShow(
	ctx context.Context, w *catalog.Workspace, opts MountOptions, frozen bool, state *livestate.State,
) (*opened, error) {
	o := &opened{home: h, frozen: frozen, state: state}
	var err error
	if o.stack, err = h.cache.Open(ctx, w.Base); err != nil {
		return nil, errors.Join(err, o.abandon())
	}
	o.stack.Hold(layerstore.Hold{Workspace: w.ID})
	if o.reads, o.record, err = h.beginReads(w, opts); err != nil {
		return nil, errors.Join(err, o.abandon())
	}
	if o.overlay, err = h.overlayToShow(w, o.stack, frozen, o.reads, state); err != nil {
		return nil, errors.Join(err, o.abandon())
	}
	if w.Paused {
		if state != nil {
			_ = o.overlay.Settle(state.Requests()) // it could not, later; whoever serves the mount is told the error
		}
		o.overlay.Pause()
	}
	return o, nil
}

// abandon closes what could not be shown.
func (o *opened) abandon() error {
	var err error
	if o.overlay != nil {
		err = o.overlay.Close()
	}
	o.home.endReads(o.reads, o.record)
	if o.stack != nil {
		o.stack.Release()
	}
	if o.state != nil {
		err = errors.Join(err, o.state.Close())
	}
	return err
}

// show has a connection be known as that of a workspace, and watches it. source is what the mount tables call it.
func (h *Home) show(w *catalog.Workspace, o *opened, m mounted, source string, how shown) *live {
	major, minor := m.Device()
	l := &live{
		overlay: o.overlay, frozen: o.frozen, mount: m, stack: o.stack, by: how.at.by, source: source,
		reads: o.reads, record: o.record, memory: o.state,
		gone: make(chan struct{}), device: fmt.Sprintf("%d:%d", major, minor),
	}
	how.attached = h.attachmentOf(m, how.at, l.device)
	l.shown.Store(&how)
	l.names.Store(&liveNames{now: w.ID})
	h.mu.Lock()
	h.live[w.ID] = l
	h.mu.Unlock()
	// The watcher ends with the connection; Unmount, Destroy and Close wait for l.gone.
	go h.watch(l)
	return l
}

// recordMount writes where a workspace is mounted, and its record of reads.
func (h *Home) recordMount(ctx context.Context, name string, m *catalog.Mount, reads *catalog.Reads) error {
	_, err := h.catalog.Update(ctx, false, func(ch *catalog.Change) error {
		h.putMount(ch, name, m)
		for _, w := range ch.PutWorkspaces {
			w.Reads = reads
		}
		return nil
	})
	return err
}

// putMount adds to a change where a workspace is mounted.
func (h *Home) putMount(ch *catalog.Change, name string, m *catalog.Mount) {
	if w := h.catalog.Workspace(name); w != nil {
		next := *w
		next.Mount = m
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
	}
}
