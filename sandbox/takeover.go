package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	snapfuse "snapfs/fs"
	"snapfs/internal/livestate"
	"snapfs/sandbox/internal/catalog"
)

// takeOver goes on with the connections of the process that had the home before. Those that cannot be gone on with end:
// their mounts are dead ones, as if nothing had kept them. An error is one that may not come again: who holds the
// connections is to try again. Nothing uses the home yet, and no path may be looked up that could lie inside a mount:
// nobody answers before this returns.
func (h *Home) takeOver(ctx context.Context) error {
	if h.keeper == nil {
		return nil
	}
	all, err := h.keeper.Kept()
	if err != nil {
		return fmt.Errorf("%w: what the last process has left cannot be had: %w", ErrUnavailable, err)
	}
	var some errgroup.Group
	some.SetLimit(runtime.GOMAXPROCS(0))
	for _, k := range all {
		if strings.HasPrefix(k.Name, keptPrefix) {
			some.Go(func() error { return h.takeOverOne(ctx, k) })
			continue
		}
		for _, f := range k.Files {
			_ = f.Close() // a duplicate
		}
	}
	return some.Wait()
}

// lasting are the errors after which nobody can go on with a connection.
var lasting = []error{
	errStale, ErrCorrupt, livestate.ErrFormat, snapfuse.ErrNotAdoptable, snapfuse.ErrNotConnection, snapfuse.ErrEnded,
}

// mostTries is how many processes in a row may fail to begin to serve before what one fails of counts as lasting: what
// holds the connections starts a few more.
const mostTries = 4

// isLasting reports whether nobody can go on with a connection, because of an error.
func (h *Home) isLasting(err error) bool {
	if slices.ContainsFunc(lasting, func(e error) bool { return errors.Is(err, e) }) {
		return true
	}
	tries := 0
	for _, d := range h.deaths {
		if !d.Served {
			tries++
		}
	}
	return tries >= mostTries
}

// takeOverOne goes on with one connection, or ends it.
func (h *Home) takeOverOne(ctx context.Context, found Kept) error {
	k, err := h.recognise(found)
	if err == nil {
		err = h.adopt(ctx, k)
	}
	if err == nil {
		return nil
	}
	if !h.isLasting(err) {
		return errors.Join(fmt.Errorf("the mount of workspace %s, of an earlier process: %w", k.Workspace, err), k.close())
	}
	h.log.Warn("a mount of an earlier process cannot be gone on with", "workspace", k.Workspace, "device", k.Device,
		"error", err)
	if k.device != nil && k.Home == h.id {
		// A process that was killed keeps its copy as long as a thread of it waits in the kernel, perhaps in this mount.
		if err := snapfuse.End(k.device, deviceNumber(k.Device)); err != nil {
			h.log.Debug("ending a connection of an earlier process", "device", k.Device, "error", err)
		}
	}
	// The holder's copy goes last: what it had is then what a process leaves that is killed.
	if err := errors.Join(k.close(), h.keeper.Forget(found.Name)); err != nil {
		h.log.Warn("a mount of an earlier process is still kept", "workspace", k.Workspace, "error", err)
	}
	return nil
}

// errStale says that something kept is not what the records tell.
var errStale = errors.New("it is not what is recorded")

// recognise finds the workspace of something that was kept, which belongs to what it gives, also with an error.
func (h *Home) recognise(found Kept) (*kept, error) {
	k := &kept{name: found.Name}
	if len(found.Files) > 0 {
		k.device = found.Files[0]
	}
	for i, f := range found.Files {
		if i > 1 {
			_ = f.Close() // of another version
		}
	}
	if len(found.Files) > 1 {
		state, err := livestate.Open(found.Files[1])
		if err != nil {
			return k, errors.Join(err, found.Files[1].Close())
		}
		k.state = state
	}
	if err := json.Unmarshal(found.Data, &k.keptMount); err != nil {
		return k, fmt.Errorf("%w: %w", errStale, err)
	}
	switch {
	case len(found.Files) < 2:
		return k, fmt.Errorf("%w: %d descriptors", errStale, len(found.Files))
	case k.Home != h.id:
		return k, fmt.Errorf("%w: it is of another home", errStale)
	case k.Moving:
		return k, fmt.Errorf("%w: its tree was being moved", errStale)
	case ended(k.device):
		return k, fmt.Errorf("%w: it has ended", errStale)
	}
	if k.workspace = h.mountedAs(k.keptMount); k.workspace == nil {
		return k, fmt.Errorf("%w: no workspace is mounted there", errStale)
	}
	below := h.catalog.Layer(k.workspace.Base)
	if k.Upper != k.workspace.Upper && (below == nil || below.Upper != k.Upper) {
		return k, fmt.Errorf("%w: the workspace has another tree", errStale)
	}
	return k, nil
}

// mountedAs finds the workspace whose record has a connection.
func (h *Home) mountedAs(k keptMount) *catalog.Workspace {
	for _, w := range h.catalog.Workspaces() {
		m := w.Mount
		if m == nil || !m.Mounted || h.copied(m.Home) {
			continue
		}
		if m.Device == k.Device || m.Device == "" && w.ID == k.Workspace {
			return w
		}
	}
	return nil
}

// ended reports whether the connection of a device has ended.
func ended(device *os.File) bool {
	raw, err := device.SyscallConn()
	if err != nil {
		return true
	}
	end := true
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(fds, 0)
		end = err != nil || fds[0].Revents&unix.POLLERR != 0
	})
	return err != nil || end
}

// adopt goes on with a connection. What it has belongs to the mount then, unless it fails.
func (h *Home) adopt(ctx context.Context, k *kept) error {
	w := k.workspace
	asked := w.Mount.Options
	opts := guarded(w, asked)
	state := k.state
	k.state = nil
	crashed := h.crashed(state)
	o, err := h.openToShow(ctx, w, asked, k.Frozen, state)
	if err != nil {
		return err
	}
	at := h.locationRecorded(w.Mount)
	how := attaching{state: state, crashed: crashed, refused: h.refused(w.ID)}
	if at.apart {
		how.place = func(int) error { return nil } // it is attached already
	}
	source := w.ID
	if w.Mount.Source != "" {
		source = w.Mount.Source
	}
	m, err := h.engine.adopt(ctx, o.overlay, source, at.path, k.device, opts, how)
	if err != nil {
		return errors.Join(err, o.abandon())
	}
	k.device = nil
	l := h.show(w, o, m, source, shown{at: at, options: opts, asked: asked})
	l.upper.Store(w.Upper)
	h.keep(l) // the descriptors are new ones
	if err := l.refresh(ctx, false); err != nil {
		h.log.Warn("a mount keeps using layers that were replaced", "workspace", w.ID, "error", err)
	}
	if w.Mount.Device == "" {
		h.recordMounted(ctx, w.ID, w.Session, l, nil)
	}
	h.log.Info("goes on with a mount", "workspace", w.ID, "mountpoint", at.path)
	return nil
}

// locationRecorded is where a workspace is mounted by its record.
func (h *Home) locationRecorded(m *catalog.Mount) mountLocation {
	v, ok := h.viewRecorded(m)
	if !ok { // the namespace is gone, and the connection lives on elsewhere
		_, name, _ := strings.Cut(m.Namespace, " ")
		v.ns, _, _ = strings.Cut(name, " ")
	}
	return mountLocation{
		path: m.Mountpoint, made: m.Made, guarded: m.Guarded, by: m.By, view: v, apart: !v.own() || m.Nested,
	}
}

// KeepMounts makes Close leave connections that are kept to a process that follows.
func (h *Home) KeepMounts() { h.keepMounts.Store(true) }

// releaseWait is how long the requests under way have to end when connections are given up.
const releaseWait = 30 * time.Second

// handOver gives the connections that are kept up to a successor, which has what they wait for sent again. With an error
// this process must end: requests are still under way in it.
func (h *Home) handOver() error {
	if h.keeper == nil || !h.keepMounts.Load() {
		return nil
	}
	h.keepGuards.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	var all errgroup.Group
	for _, l := range h.allLive() {
		if !h.isKept(l) { // it ends in order, and is mounted again
			continue
		}
		all.Go(func() error {
			l.handed.Store(true)
			if err := l.mount.Release(ctx); err != nil {
				return fmt.Errorf("the mount of workspace %s is not given up: %w", l.workspace(), err)
			}
			<-l.gone
			return nil
		})
	}
	return all.Wait()
}
