package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/internal/userns"
	"snapfs/layers"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/mountns"
	"snapfs/sandbox/internal/peer"
)

// The kernel engine: the kernel's overlayfs merges the upper of a workspace over one read-only FUSE mount of the layers
// below, which all workspaces on these layers share (kernellower.go). Requests about what is in the upper never reach
// this process.
//
//	mount     the upper is empty (what it had is sealed first) ─▶ Kernel recorded ─▶ attached ─▶ device recorded
//	snapshot  the upper stays; an image is made while it is written (kernelcapture.go): of what has changed since the last
//	          one, as a layer over that, or of all of it, as a layer over the workspace's Base
//	end       no overlay has the upper any more ─▶ the upper becomes a layer and Kernel is cleared (kernelsettle.go)
//
// A workspace whose record has Kernel may be mounted this way, here or by a copy of the mount elsewhere, whatever has
// become of the process that mounted it. Its upper is not used for anything else before it is settled. Whether an overlay
// has it only the kernel knows: another overlay with the same upper is refused then (mountns.InUse).
//
// Such a mount has a live, with an overlay of ours that takes no changes and answers nobody: what may be done to a
// read-only mount may be done to this, and nothing else.

// overlayType is what mount tables call the kernel's overlayfs.
const overlayType = "overlay"

// errKernel says that the kernel engine cannot do something.
func errKernel(class error, workspace, text string) error {
	return fmt.Errorf("%w: the kernel engine cannot show workspace %s: %s; the fuse engine can (--engine fuse)",
		class, workspace, text)
}

// mayUseKernel tells why the kernel's overlayfs cannot show a workspace.
func (h *Home) mayUseKernel(ctx context.Context, w *catalog.Workspace, opts MountOptions) error {
	switch {
	case os.Geteuid() != 0 || !userns.Initial():
		return errKernel(ErrRefused, w.ID, "the daemon must run as root, in no user namespace")
	case peer.From(ctx) != nil, caller.From(ctx).Remotely():
		return errKernel(ErrRefused, w.ID, "only root may mount this way")
	case !mountns.Enabled():
		return errKernel(ErrUnavailable, w.ID, "this program has no process that mounts (see sandbox.IsMounter)")
	case opts.ReadOnly:
		return errKernel(ErrInvalid, w.ID, "a read-only mount has nothing to write")
	case opts.TrackReads:
		return errKernel(ErrInvalid, w.ID, "it does not see what programs read (track_reads)")
	case opts.Writeback, opts.Transport != "" && opts.Transport != "auto":
		return errKernel(ErrInvalid, w.ID, "writeback and transport are options of a FUSE mount")
	case w.Quota != nil:
		return errKernel(ErrInvalid, w.ID, "it does not count what the workspace takes, which has a quota")
	case w.Paused:
		return errKernel(ErrConflict, w.ID, "it is paused")
	}
	return nil
}

// kernelMount is a mount of the kernel's overlayfs; it implements mounted.
type kernelMount struct {
	home   *Home
	device string // major:minor
	id     uint64 // of the mount
	view   view
	upper  uint64
	option string        // the upper as mount tables name it
	done   chan struct{} // closed by ended
	ended  func()
}

// kernel gives the mount of a workspace that the kernel's overlayfs shows; nil of others, and of a nil l.
func (l *live) kernel() *kernelMount {
	if l == nil {
		return nil
	}
	k, _ := l.mount.(*kernelMount)
	return k
}

// readOnly says why a mount whose overlay takes no changes is not to be changed, for a message.
func (l *live) readOnly() string {
	if l.kernel() != nil {
		return "mounted by the kernel's overlayfs, which does not take this"
	}
	return "mounted read-only"
}

// mountKernel attaches an overlay of the kernel to a location. The caller has recorded that it will.
func (h *Home) mountKernel(
	ctx context.Context, w *catalog.Workspace, lower string, at *mountLocation, opts MountOptions,
) (*kernelMount, error) {
	p, err := h.attach(ctx, at, mountns.Request{
		Do: mountns.Overlay, Merge: &mountns.Merge{
			Source: w.ID, Lower: lower, Upper: h.uppers.Path(w.Upper), Work: h.uppers.Work(w.Upper),
			Set: fuseOptions(opts).Attributes(),
		},
	})
	if p.Device == 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)) {
		return nil, errKernel(ErrUnavailable, w.ID, err.Error())
	}
	if err != nil {
		return nil, classify(fmt.Errorf("mounting %s at %s: %w", w.ID, at.path, err))
	}
	return h.newKernelMount(w, p.Device, p.ID, at.view), nil
}

func (h *Home) newKernelMount(w *catalog.Workspace, device, id uint64, v view) *kernelMount {
	done := make(chan struct{})
	return &kernelMount{
		home: h, device: fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device)), id: id, view: v,
		upper: w.Upper, option: upperOption(h.uppers.Path(w.Upper)), done: done, ended: sync.OnceFunc(func() { close(done) }),
	}
}

// is reports whether an entry of a mount table is of this overlay. When that has ended, its device number is that of the
// next file system that is mounted.
func (m *kernelMount) is(e mountEntry) bool {
	return e.device == m.device && e.fstype == overlayType && e.upper == m.option
}

// check ends the mount if no overlay has the upper any more, and reports whether it has ended.
func (m *kernelMount) check(ctx context.Context) (ended bool) {
	if m.Ended() {
		return true
	}
	if mounts, err := m.view.mounts(); err != nil || slices.ContainsFunc(mounts, m.is) {
		return false
	}
	used, err := m.home.upperInUse(ctx, m.upper)
	if err != nil {
		m.home.log.Debug("looking for an overlay of an upper", "upper", m.upper, "error", err)
	}
	if used || err != nil {
		return false
	}
	m.ended()
	return true
}

// Unmount implements attachment; what is attached is a kernelAttachment.
func (m *kernelMount) Unmount(bool) error { return unix.EINVAL }

// Visible implements attachment.
func (m *kernelMount) Visible() bool {
	mounts, err := m.view.mounts()
	return err == nil && slices.ContainsFunc(mounts, m.is)
}

// Abort implements mounted: nothing ends an overlay that programs use.
func (m *kernelMount) Abort() error {
	if m.check(context.WithoutCancel(m.home.ctx)) {
		return nil
	}
	return fmt.Errorf("%w: programs still use it, and the kernel takes no overlay away from them", ErrConflict)
}

func (m *kernelMount) Done() <-chan struct{} { return m.done }

func (m *kernelMount) Ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

func (m *kernelMount) Transport() string { return "" }

func (m *kernelMount) Device() (major, minor uint32) {
	n := deviceNumber(m.device)
	return unix.Major(n), unix.Minor(n)
}

func (m *kernelMount) Requests() map[string]uint64                 { return nil }
func (m *kernelMount) ExpireEntry(layers.NodeID, string) error     { return nil }
func (m *kernelMount) InvalidateEntry(layers.NodeID, string) error { return nil }
func (m *kernelMount) InvalidateNode(layers.NodeID) error          { return nil }
func (m *kernelMount) DeviceFile() *os.File                        { return nil }
func (m *kernelMount) Release(context.Context) error               { m.ended(); return nil }

// kernelAttachment is what the overlay of the kernel has in a mount namespace.
type kernelAttachment struct {
	apartMount
	mount *kernelMount
}

// Unmount implements attachment.
func (a kernelAttachment) Unmount(lazy bool) error {
	mounts, err := a.at.view.mounts()
	e, ok := mounts.at(a.at.path)
	if err != nil || ok && a.mount.is(e) { // else it was unmounted by other means
		err = a.apartMount.Unmount(lazy)
	}
	if err == nil {
		a.mount.check(context.WithoutCancel(a.home.ctx))
	}
	return err
}

// upperInUse reports whether an overlay of the kernel has an upper. One that finds that out has it meanwhile.
func (h *Home) upperInUse(ctx context.Context, upper uint64) (bool, error) {
	unlock, err := h.probes.Lock(ctx, strconv.FormatUint(upper, 10))
	if err != nil {
		return false, err
	}
	defer unlock()
	p, err := mountns.Run(ctx, mountns.Request{Do: mountns.InUse, Merge: &mountns.Merge{
		Source: "probe", Lower: filepath.Join(h.dir, emptyDir), Upper: h.uppers.Path(upper), Work: h.uppers.Root(upper),
	}})
	return p.Mounted, err
}

// openKernel opens what a mount of the kernel's overlayfs has of ours.
func (h *Home) openKernel(ctx context.Context, w *catalog.Workspace, opts MountOptions) (*opened, error) {
	return h.openToShow(ctx, w, opts, true, nil)
}

// takeOverKernels goes on with the overlays of the kernel that an earlier process has mounted: nothing serves them, but
// what they stand on. Those whose lower has nobody who answers are taken away; programs that use them have errors then,
// as with other mounts that nobody serves.
func (h *Home) takeOverKernels(ctx context.Context) error {
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	for _, w := range h.catalog.Workspaces() {
		if w.Kernel == nil || w.Mount == nil || h.liveOf(w.ID) != nil || h.copied(w.Mount.Home) {
			continue
		}
		at := h.locationRecorded(w.Mount)
		if !at.view.own() {
			if mounts, err = at.view.mounts(); err != nil {
				continue
			}
		}
		e, ok := mounts.at(at.path)
		source := w.ID
		if w.Mount.Source != "" {
			source = w.Mount.Source
		}
		if !ok || e.fstype != overlayType || e.source != source ||
			e.upper != upperOption(h.uppers.Path(w.Upper)) || w.Mount.Device != "" && w.Mount.Device != e.device {
			continue
		}
		if err := h.takeOverKernel(ctx, w, at, e); err != nil {
			return err
		}
	}
	return nil
}

func (h *Home) takeOverKernel(ctx context.Context, w *catalog.Workspace, at mountLocation, e mountEntry) error {
	m := h.newKernelMount(w, deviceNumber(e.device), e.id, at.view)
	if w.Kernel.View != "" && h.liveOf(w.Kernel.View) == nil {
		h.log.Warn("nobody answers for what a mount stands on: it is taken away", "workspace", w.ID, "mountpoint", at.path)
		return kernelAttachment{apartMount{h, at, m.device}, m}.Unmount(true)
	}
	opts := guarded(w, w.Mount.Options)
	o, err := h.openKernel(ctx, w, opts)
	if err != nil {
		return err
	}
	l := h.show(w, o, m, e.source, shown{at: at, options: opts, asked: w.Mount.Options})
	l.upper.Store(w.Upper)
	h.watchKernels()
	if w.Mount.Device == "" {
		h.recordMounted(ctx, w.ID, w.Session, l, nil)
	}
	h.log.Info("goes on with a mount", "workspace", w.ID, "mountpoint", at.path)
	return nil
}

// mountKernelAt is mountAt for the kernel engine.
func (h *Home) mountKernelAt(
	ctx context.Context, w *catalog.Workspace, session string, at mountLocation, opts MountOptions, events []Event,
) (err error) {
	if err := h.mayUseKernel(ctx, w, opts); err != nil {
		return err
	}
	if w, err = h.readyForKernel(ctx, w); err != nil {
		return err
	}
	view, lower, unlock, err := h.lowerOf(ctx, w.Base)
	if err != nil {
		return err
	}
	defer func() {
		unlock()
		if err != nil {
			h.leaveLower(ctx, view)
		}
	}()
	o, err := h.openKernel(ctx, w, opts)
	if err != nil {
		return err
	}
	h.guardLocation(at)
	defer at.close()
	at.apart = true // a process attaches it: this one must not look at what it serves itself
	before := w.Mount
	if err := h.recordKernel(ctx, w.ID, h.wanted(at, opts), &catalog.Kernel{View: view}); err != nil {
		return errors.Join(err, o.abandon())
	}
	asked := opts
	opts = guarded(w, asked)
	m, err := h.mountKernel(ctx, w, lower, &at, opts)
	if err != nil {
		if err := h.recordKernel(context.WithoutCancel(ctx), w.ID, before, nil); err != nil {
			h.log.Warn("recording that a mount failed", "workspace", w.ID, "error", err)
		}
		return errors.Join(err, o.abandon())
	}
	h.points.At("mounted")
	l := h.show(w, o, m, w.ID, shown{at: at, options: opts, asked: asked})
	l.upper.Store(w.Upper)
	h.watchKernels()
	h.recordMounted(ctx, w.ID, session, l, events)
	return nil
}

// readyForKernel gives a workspace an upper that only the kernel writes: what the present one has becomes a layer. What
// lies below is not imported any more.
func (h *Home) readyForKernel(ctx context.Context, w *catalog.Workspace) (*catalog.Workspace, error) {
	if h.importing(w.Base) != nil {
		if err := h.storer.Wait(ctx, w.Base, nil); err != nil {
			return nil, fmt.Errorf("workspace %s is being imported, which the kernel engine waits for: %w", w.ID, err)
		}
	}
	empty, err := isEmptyDir(h.uppers.Path(w.Upper))
	if err != nil {
		return nil, pathError(h.uppers.Path(w.Upper), err)
	}
	if w.Base == "" && empty {
		return w, nil
	}
	err = h.freeze(ctx, w.ID, false, func(ch *catalog.Change, w *catalog.Workspace, top string) error {
		for _, l := range ch.PutLayers {
			l.Follows = h.followed(w) // no snapshot has it
		}
		w.Base = top
		return nil
	})
	if err != nil {
		return nil, err
	}
	w = h.catalog.Workspace(w.ID)
	stack, err := h.cache.Open(ctx, w.Base)
	if err != nil {
		return nil, err
	}
	defer stack.Release()
	if err := layers.PrepareUpper(h.uppers.Path(w.Upper), stack.Lowers()); err != nil {
		return nil, classify(fmt.Errorf("mounting %s: %w", w.ID, err))
	}
	return w, nil
}

// recordKernel writes where a workspace is mounted, and by what.
func (h *Home) recordKernel(ctx context.Context, name string, m *catalog.Mount, k *catalog.Kernel) error {
	_, err := h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		h.putMount(ch, name, m)
		for _, w := range ch.PutWorkspaces {
			w.Kernel = k
		}
		return nil
	})
	return err
}
