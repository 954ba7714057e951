package sandbox

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	snapfuse "snapfs/fs"
	"snapfs/internal/processes"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/mountns"
)

// attachment is what a connection has in a mount namespace.
type attachment interface {
	Unmount(lazy bool) error // EBUSY while in use unless lazy
	Visible() bool           // where it was mounted; no server is asked anything
}

// apartMount is a mount that another process has attached, and takes away: see package mountns.
type apartMount struct {
	home   *Home
	at     mountLocation
	device string
}

// attachmentOf gives what was attached at a location.
func (h *Home) attachmentOf(m mounted, at mountLocation, device string) attachment {
	apart := apartMount{h, at, device}
	if k, ok := m.(*kernelMount); ok {
		return kernelAttachment{apart, k}
	}
	if at.apart {
		return apart
	}
	return m
}

// Unmount implements attachment.
func (a apartMount) Unmount(lazy bool) error {
	if !a.at.view.own() && a.at.view.process() == 0 {
		return nil // the namespace is gone, and the mount with it
	}
	_, err := a.at.view.run(context.WithoutCancel(a.home.ctx), mountns.Request{
		Do: mountns.Detach, Path: a.at.path, Device: deviceNumber(a.device), Lazy: lazy,
	})
	return err
}

// Visible implements attachment.
func (a apartMount) Visible() bool {
	mounts, err := a.at.view.mounts()
	return err == nil && mounts.hasDevice(a.device)
}

// placer gives what attaches a mount where this process must not, or cannot; nil if it mounts itself. It completes what
// is known of the location.
func (h *Home) placer(ctx context.Context, at *mountLocation) func(mount int) error {
	if !at.apart {
		return nil
	}
	return func(mount int) error {
		_, err := h.attach(ctx, at, mountns.Request{Do: mountns.Attach, Mount: mount})
		return err
	}
}

// attach has a process attach something to a location.
func (h *Home) attach(ctx context.Context, at *mountLocation, r mountns.Request) (mountns.Place, error) {
	r.Path, r.Make, r.Guard, r.Guarded = at.path, at.missing, h.ownPoints, at.guarded
	p, err := at.view.run(ctx, r)
	if err != nil && r.Do == mountns.Overlay && p.Device == 0 {
		return p, err // it could not be made, wherever it is to be
	}
	if err != nil {
		return p, pathError(at.path, err)
	}
	at.path, at.guarded = p.Path, p.Guarded
	at.made = at.made || p.Made && h.ownPoints
	return p, nil
}

// rejoin mounts a workspace whose connection lives on in another mount namespace: what is mounted is a copy of the
// mount there, so that both see the same.
func (h *Home) rejoin(
	ctx context.Context, w *catalog.Workspace, l *live, session string, at location, makeIt bool, opts MountOptions,
	events []Event,
) error {
	asked, now := opts, l.options()
	opts = guarded(w, asked)
	switch {
	case l.frozen && l.kernel() == nil && !opts.ReadOnly:
		return fmt.Errorf("%w: workspace %s is detached, and read-only where it is left: %s", ErrConflict, w.ID, h.detachedHolder(l))
	case opts.Writeback != now.Writeback, opts.AllowOther != now.AllowOther,
		opts.TrackReads != now.TrackReads, opts.Engine != now.Engine,
		opts.Transport != "" && opts.Transport != "auto" && opts.Transport != l.mount.Transport():
		return fmt.Errorf("%w: workspace %s is detached, and has other options where it is left (%s): %s", ErrConflict, w.ID, optionList(now), h.detachedHolder(l))
	}
	from, point := h.copyOf(l)
	if point == "" {
		return fmt.Errorf("%w: workspace %s is detached: %s",
			ErrConflict, w.ID, h.detachedHolder(l))
	}
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	at.apart = true // also here: what is copied is elsewhere
	if at.info != nil {
		_, at.covered = mounts.at(at.path)
		at.dir = at.info.IsDir()
	}
	where, err := h.choose(ctx, w, at, mounts, makeIt)
	if err != nil {
		return err
	}
	ns, err := openNamespace(from.pid)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }() // nothing is written
	_, err = h.attach(ctx, &where, mountns.Request{
		Do: mountns.Copy, Source: int(ns.Fd()), From: point, Device: deviceNumber(l.device),
		Set: fuseOptions(opts).Attributes(), Clear: snapfuse.AllAttributes,
	})
	if err != nil {
		return err
	}
	opts.Transport = now.Transport
	l.shown.Store(&shown{at: where, options: opts, asked: asked, attached: h.attachmentOf(l.mount, where, l.device)})
	h.recordMounted(ctx, w.ID, session, l, events)
	return nil
}

// copyOf finds a mount namespace that has a copy of a mount, and where it is there.
func (h *Home) copyOf(l *live) (from view, point string) {
	h.eachNamespace(func(v view, mounts mountTable) bool {
		for _, e := range mounts {
			if l.is(e) && e.root == "/" {
				from, point = v, e.point
			}
		}
		return point == ""
	})
	return from, point
}

// eachNamespace calls fn for the mount namespaces of the processes that are visible, with one process of each, until it
// returns false.
func (h *Home) eachNamespace(fn func(v view, mounts mountTable) bool) {
	seen := map[string]bool{}
	processes.Each(func(dir string, pid int) bool {
		v, err := h.viewOfProcess(pid)
		if err != nil || v.chroot || seen[v.ns] {
			return true
		}
		seen[v.ns] = true
		v.pid = pid
		mounts, err := readMountinfo(dir + "/mountinfo")
		return err != nil || fn(v, mounts)
	})
}

// recordMounted records how a workspace that has a connection is mounted now.
func (h *Home) recordMounted(ctx context.Context, name, session string, l *live, events []Event) {
	how := l.shown.Load()
	_, err := h.catalog.Update(context.WithoutCancel(ctx), false, func(ch *catalog.Change) error {
		now := h.wanted(how.at, how.asked)
		now.Device = l.device
		if l.source != name { // renamed since
			now.Source = l.source
		}
		h.putMount(ch, name, now)
		for _, w := range ch.PutWorkspaces {
			w.Engine = now.Options.Engine
			if m := l.kernel(); m != nil && w.Kernel != nil {
				w.Kernel = &catalog.Kernel{View: w.Kernel.View, Device: m.device, ID: m.id}
			}
		}
		event := h.event(EventMounted, name, session, "", how.at.path+" ("+optionList(how.options)+")")
		ch.Events = append(append(ch.Events, events...), event)
		return nil
	})
	if err != nil {
		h.log.Warn("recording a mount", "workspace", name, "error", err)
	}
}

// errGone says that what is to be changed is not there any more.
var errGone = errors.New("it is not mounted any more")

// setAttributes changes the attributes of a mount.
func (h *Home) setAttributes(ctx context.Context, l *live, o MountOptions) error {
	how := l.shown.Load()
	if how.at.apart {
		_, err := how.at.view.run(ctx, mountns.Request{
			Do: mountns.Change, Path: how.at.path, Device: deviceNumber(l.device),
			Set: fuseOptions(o).Attributes(), Clear: snapfuse.AllAttributes,
		})
		return err
	}
	// Whoever may rename what is above the path cannot have another mount changed: it is opened, then looked at.
	fd, err := unix.Open(how.at.path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing is written
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return err
	}
	if unix.Mkdev(st.Dev_major, st.Dev_minor) != deviceNumber(l.device) || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return errGone
	}
	attr := unix.MountAttr{Attr_set: fuseOptions(o).Attributes(), Attr_clr: snapfuse.AllAttributes}
	return unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr)
}
