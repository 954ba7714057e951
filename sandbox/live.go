package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	snapfuse "snapfs/fs"
	"snapfs/internal/livestate"
	"snapfs/internal/lockorder"
	"snapfs/internal/readset"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/peer"
	"snapfs/sandbox/internal/uppers"
)

// live is a workspace with a FUSE connection: mounted, or detached.
type live struct {
	names atomic.Pointer[liveNames]

	// Immutable.
	device  string     // major:minor
	source  string     // what the mount tables call it: the workspace's name when it was mounted
	by      *peer.User // for whom it is mounted; nil: for everybody
	overlay *layers.Overlay
	frozen  bool           // the overlay takes no changes
	reads   *readset.Set   // what programs have read; nil: that is not recorded
	record  *catalog.Reads // of reads
	mount   mounted
	gone    chan struct{}    // closed by the watcher when overlay and stack are closed
	memory  *livestate.State // what a successor needs; nil: the connection ends with this process

	// upper is that of the overlay, and moving says that the tree is about to be moved, or has been and the kernel does
	// not know all of it: stored under the lock of the workspace.
	upper  atomic.Uint64
	moving atomic.Bool
	known  atomic.Bool // the Keeper has the connection
	handed atomic.Bool // the connection goes on without this process: stored before it is given up

	shown atomic.Pointer[shown] // stored under the lock of the workspace

	moved atomic.Pointer[chan struct{}] // see nextMove; nil if nobody waits

	users  lockorder.RWMutex[lockorder.LiveUsers] // held for reading while the overlay is used, for writing to close it
	closed bool                                   // guarded by users

	stackMu lockorder.Mutex[lockorder.LiveStack]
	stack   *layerstore.Stack   // guarded by stackMu: what the overlay stands on
	kept    []*layerstore.Lower // guarded by stackMu: see adopt
	behind  error               // guarded by stackMu: why stack is not what the records tell; nil: it is
	late    atomic.Bool         // somebody waits for stackMu to refresh the stack

	stale []layers.Stale // guarded by stackMu: what the kernel is to forget when the pause is over

	sealedMu lockorder.Mutex[lockorder.LiveSealed]
	sealed   []*layerstore.Lower // guarded by sealedMu: to be pushed by the next that locks the stack, oldest first
}

// shown is where and how a connection is mounted. Immutable.
type shown struct {
	at       mountLocation
	options  MountOptions
	asked    MountOptions // before foreign trees were guarded against
	attached attachment
}

func (l *live) at() mountLocation { return l.shown.Load().at }

func (l *live) options() MountOptions { return l.shown.Load().options }

// where names the mountpoint for a message.
func (l *live) where() string {
	at := l.at()
	if at.view.own() || at.view.chroot {
		return at.path
	}
	return at.path + " in another mount namespace"
}

// liveNames are how a workspace is called, and while it is being renamed what it is renamed from.
type liveNames struct{ now, before string }

// workspace is the name of the workspace.
func (l *live) workspace() string { return l.names.Load().now }

// use keeps the overlay open until done is called; false if it is closed already.
func (l *live) use() (done func(), ok bool) {
	l.users.RLock()
	if l.closed {
		l.users.RUnlock()
		return nil, false
	}
	return l.users.RUnlock, true
}

// push has a layer that was just sealed come on top of the stack. It does not wait for who works on the stack: what that
// replaces lies further down.
func (l *live) push(low *layerstore.Lower) {
	l.sealedMu.Lock()
	defer l.sealedMu.Unlock()
	l.sealed = append(l.sealed, low)
}

// lockStack locks the stack, with all layers that were pushed.
func (l *live) lockStack() (unlock func()) {
	l.stackMu.Lock()
	return l.takeSealed()
}

// takeSealed puts the layers that were pushed on the stack, which is locked.
func (l *live) takeSealed() (unlock func()) {
	l.sealedMu.Lock()
	sealed := l.sealed
	l.sealed = nil
	l.sealedMu.Unlock()
	for _, low := range sealed {
		l.stack.Push(low)
	}
	return l.stackMu.Unlock
}

// retain keeps what the overlay stands on now until release is called.
func (l *live) retain() (release func()) {
	defer l.lockStack()()
	return l.stack.Clone().Release
}

// adopt puts the directory that was the upper of a read-only mount, and is a layer now, on top of the stack: the
// overlay has taken it for a lower all the time.
func (l *live) adopt(low *layerstore.Lower) error {
	defer l.lockStack()()
	lowers, err := l.overlay.Lowers()
	if err == nil {
		if err = l.stack.Adopt(l.overlay, lowers[0], low); err == nil {
			low = nil
		}
	}
	for _, own := range lowers {
		err = errors.Join(err, own.Close())
	}
	if low != nil { // it must stay as long as the mount shows it
		l.kept = append(l.kept, low)
	}
	return err
}

// refresh makes the stack beneath the running overlay the one that the records tell, see layerstore.Stack.Refresh. With
// retry it tries again what has failed before.
func (l *live) refresh(ctx context.Context, retry bool) error {
	done, ok := l.use()
	if !ok {
		return nil
	}
	defer done()
	l.stackMu.Lock()
	return l.refreshLocked(ctx, retry)
}

// refreshLocked is refresh with the overlay in use and the stack locked, which it unlocks.
func (l *live) refreshLocked(ctx context.Context, retry bool) error {
	defer l.takeSealed()()
	l.late.Store(false)
	err := l.stack.Refresh(ctx, l.overlay, retry)
	if retry || err != nil {
		l.behind = err
	}
	return err
}

// refreshAll refreshes the stacks of all mounts. It does not wait for those that others work on, which may take long:
// they are refreshed after that.
func (h *Home) refreshAll(ctx context.Context, retry bool) {
	for _, l := range h.allLive() {
		done, ok := l.use()
		if !ok {
			continue
		}
		if l.stackMu.TryLock() {
			h.behind(ctx, l, l.refreshLocked(ctx, retry))
		} else if l.late.CompareAndSwap(false, true) {
			h.work.Go(func() { h.behind(h.ctx, l, l.refresh(h.ctx, retry)) })
		}
		done()
	}
}

// behind says that the stack of a mount could not be refreshed.
func (h *Home) behind(ctx context.Context, l *live, err error) {
	if err != nil && ctx.Err() == nil {
		h.log.Warn("a mount keeps using layers that were replaced", "workspace", l.workspace(), "error", err)
	}
}

// storerOwner passes on what the Storer of a home does.
type storerOwner struct{ home *Home }

// Attempted counts an attempt to store a layer.
func (o storerOwner) Attempted(took time.Duration, err error) { o.home.metrics.stored(took, err) }

// InPlace has every mount use images in the place of sealed directories.
func (o storerOwner) InPlace(ctx context.Context) {
	o.home.refreshAll(ctx, false)
	o.home.idler.busy()
}

// liveOf is the connection of a workspace, or nil.
func (h *Home) liveOf(name string) *live {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[name]
}

func (h *Home) allLive() []*live {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*live, 0, len(h.live))
	for _, l := range h.live {
		all = append(all, l)
	}
	return all
}

// watch waits for the end of a connection, whatever ends it, and brings its workspace to unmounted.
func (h *Home) watch(l *live) {
	<-l.mount.Done()
	if l.handed.Load() {
		h.closeLive(l)
		close(l.gone)
		return
	}
	h.forget(l)
	// A connection that was aborted leaves its mount behind, dead.
	at := l.at()
	if mounts, err := at.view.mounts(); err == nil {
		for _, e := range l.entries(mounts) { // wherever it was moved to
			var err error
			if at.apart {
				err = l.shown.Load().attached.Unmount(true)
			} else {
				_, err = snapfuse.Detach(e.point, deviceNumber(e.device))
			}
			if err != nil {
				h.log.Warn("a dead mount is still there", "mountpoint", e.point, "error", err)
			}
		}
	}
	h.points.At("unmounted")
	h.mu.Lock()
	closing := h.closing
	h.mu.Unlock()
	if !closing || !h.keepGuards.Load() {
		h.vacateLive(l)
	}
	closing = h.closeLive(l)
	if !closing { // else it is to be mounted again by the next process that is asked to
		h.recordUnmounted(l.names.Load(), at.path)
	}
	after := h.viewEnds(l.workspace())
	if l.kernel() != nil && !closing {
		after = h.kernelEnds(l.workspace())
	}
	close(l.gone)
	after()
}

// closeLive closes what a connection had that has ended, or goes on without this process. It tells whether the home is
// being closed.
func (h *Home) closeLive(l *live) (closing bool) {
	l.users.Lock()
	l.closed = true
	l.users.Unlock()
	err := error(nil)
	if !l.handed.Load() {
		err = l.overlay.DropKept()
	}
	if err := errors.Join(err, l.overlay.Close()); err != nil {
		h.log.Warn("closing an overlay", "workspace", l.workspace(), "error", err)
	}
	h.endReads(l.reads, l.record)
	unlock := l.lockStack()
	l.stack.Release()
	for _, low := range l.kept {
		h.cache.Release(low)
	}
	unlock()
	if l.memory != nil {
		if err := l.memory.Close(); err != nil {
			h.log.Warn("closing the live state of a mount", "workspace", l.workspace(), "error", err)
		}
	}
	h.mu.Lock()
	maps.DeleteFunc(h.live, func(_ string, other *live) bool { return other == l })
	closing = h.closing
	h.mu.Unlock()
	return closing
}

// entries are the mounts of a connection. Once it has ended, the kernel gives its device number to the next file system,
// which may be that of another workspace.
func (l *live) entries(mounts mountTable) []mountEntry {
	var own []mountEntry
	for _, e := range mounts {
		if e.source == l.source && l.is(e) {
			own = append(own, e)
		}
	}
	return own
}

// is reports whether an entry of a mount table is of the file system of a connection.
func (l *live) is(e mountEntry) bool {
	if k := l.kernel(); k != nil {
		return k.is(e)
	}
	return e.device == l.device && e.fstype == mountType
}

// vacateLive gives the mountpoint of a connection that has ended back.
func (h *Home) vacateLive(l *live) {
	if w := h.named(l.names.Load()); w != nil && w.Mount != nil && w.Mount.Mountpoint == l.at().path {
		h.vacate(w.Mount)
	}
}

// recordUnmounted notes that a workspace is not wanted at its mountpoint any more.
func (h *Home) recordUnmounted(names *liveNames, mountpoint string) {
	_, err := h.catalog.Update(h.ctx, false, func(ch *catalog.Change) error {
		h.catalog.WaitSettled(names.now)
		w := h.named(names)
		if w == nil || w.Mount == nil || !w.Mount.Mounted || w.Mount.Mountpoint != mountpoint {
			return nil
		}
		next := *w
		m := *w.Mount
		m.Mounted, m.Device, m.Source, m.Guarded = false, "", "", 0
		next.Mount = &m
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		ch.Events = append(ch.Events, h.event(EventUnmounted, w.ID, "", "", mountpoint))
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		h.log.Warn("recording an unmount", "workspace", names.now, "error", err)
	}
}

// named is the record of a workspace that may be about to get its name.
func (h *Home) named(names *liveNames) *catalog.Workspace {
	if w := h.catalog.Workspace(names.now); w != nil || names.before == "" {
		return w
	}
	return h.catalog.Workspace(names.before)
}

// waitGone waits for the watcher, at most for a time.
func (l *live) waitGone(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-l.gone:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// state reports where a workspace is; l may be nil. Between the end of a connection, whatever ends it, and that of its
// watcher, it waits.
func (l *live) state(mounts mountTable) WorkspaceState {
	state := l.reported(mounts)
	if k := l.kernel(); k != nil && state == Detached && k.check(k.home.ctx) { // nobody tells of its end
		state = Unmounted
	}
	if state == Unmounted && l != nil && !l.waitGone(context.Background(), endWait) {
		return Detached
	}
	return state
}

// reported is state for calls that only report it: they do not wait for what is left to do for a connection that has
// ended, which a home that takes no changes keeps waiting.
func (l *live) reported(mounts mountTable) WorkspaceState {
	switch {
	case l == nil:
		return Unmounted
	case len(l.entries(mounts)) > 0 || l.shown.Load().attached.Visible():
		return Mounted
	case l.mount.Ended():
		return Unmounted
	}
	return Detached
}

// overlayOf gives the overlay of a workspace to work on, of its mount or opened for the occasion. The caller holds the
// workspace's lock. push is called with the layer that a seal made.
func (h *Home) overlayOf(
	ctx context.Context, w *catalog.Workspace, readOnly bool,
) (o *layers.Overlay, push func(*layerstore.Lower), done func(), err error) {
	l := h.liveOf(w.ID)
	if l != nil {
		used, ok := l.use()
		switch {
		case !ok:
			<-l.gone // it has just died, and its watcher is closing it
			l = nil
		case readOnly || !l.frozen || l.kernel() != nil: // what the last one has changed is captured
			return l.overlay, l.push, used, nil
		default:
			// A read-only mount has no upper to seal, but takes the directory for a lower: a second overlay seals it.
			defer used()
		}
	}
	if err := h.isSettled(ctx, w); err != nil {
		return nil, nil, nil, err
	}
	s, err := h.cache.Open(ctx, w.Base)
	if err != nil {
		return nil, nil, nil, err
	}
	o, err = h.newOverlay(w, s, readOnly)
	if err != nil {
		s.Release()
		return nil, nil, nil, err
	}
	push = func(low *layerstore.Lower) {
		s.Push(low)
		if l != nil {
			h.cache.Retain(low)
			if err := l.adopt(low); err != nil {
				h.log.Warn("a read-only mount keeps what was its upper", "workspace", w.ID, "error", err)
			}
		}
	}
	done = func() {
		if err := o.Close(); err != nil {
			h.log.Warn("closing an overlay", "workspace", w.ID, "error", err)
		}
		s.Release()
	}
	return o, push, done, nil
}

// newOverlay opens the upper of a workspace over a stack.
func (h *Home) newOverlay(w *catalog.Workspace, s *layerstore.Stack, readOnly bool) (*layers.Overlay, error) {
	return h.overlayToShow(w, s, readOnly, nil, nil)
}

// overlayToShow is newOverlay for a mount: with what is to have what programs read, and with what a successor is to
// know; nil for neither.
func (h *Home) overlayToShow(
	w *catalog.Workspace, s *layerstore.Stack, readOnly bool, reads *readset.Set, state *livestate.State,
) (*layers.Overlay, error) {
	if !h.uppers.Exists(w.Upper) {
		return nil, fmt.Errorf("%w: workspace %s: its upper %s is missing: restore a snapshot of it",
			ErrCorrupt, w.ID, h.uppers.Path(w.Upper))
	}
	o, err := layers.New(h.uppers.Path(w.Upper), h.uppers.Work(w.Upper), s.Lowers(), layers.Options{
		InoBase: uppers.InoBase(w.Upper), WideIno: h.uppers.WideIno, ReadOnly: readOnly, Nested: w.Lower, Held: h.metrics.pause,
		Reads: reads, Live: state, Account: h.accounts.of(w, h.uppers.Work(w.Upper)), Reserve: h.reserve,
	})
	h.accounts.changed()
	if err != nil {
		return nil, classify(fmt.Errorf("opening workspace %s: %w", w.ID, lacking(err, "")))
	}
	return o, nil
}
