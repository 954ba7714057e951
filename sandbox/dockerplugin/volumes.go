package dockerplugin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// create makes a volume. One that is there with the same options stays as it is.
func (p *Plugin) create(ctx context.Context, name string, given map[string]string) error {
	o, err := parseOptions(given, os.Geteuid() != 0)
	if err != nil {
		return err
	}
	v, done, err := p.hold(name)
	if err != nil {
		return err
	}
	defer done()
	before := v.rec.Load()
	if before != nil && !before.Making {
		if maps.Equal(before.Options, given) {
			return nil
		}
		return fmt.Errorf("%w: volume %s is there with other options", api.ErrConflict, name)
	}
	if p.many() {
		return fmt.Errorf("%w: there are %d volumes, which is the limit: remove some", api.ErrConflict, maxVolumes)
	}
	r := &record{Version: recordVersion, Name: name, Session: o.session, Options: given, CreatedAt: time.Now().UTC()}
	if o.workspace != "" {
		w, err := p.show(ctx, r.access(), o.workspace)
		if err != nil {
			return err
		}
		r.Workspace = w.ID
		return p.put(v, r)
	}
	if before != nil {
		if err := p.forget(ctx, before); err != nil {
			return err
		}
	}
	r.Workspace, r.Mark, r.Making = workspaceName(name), rand.Text(), true
	if err := p.put(v, r); err != nil {
		return err
	}
	w, err := p.service.Create(ctx, api.CreateRequest{
		Access: r.access(), Quota: o.quota, Name: r.Workspace, Source: o.from, Platform: o.platform, Engine: o.mount.Engine,
		Labels: api.Labels{LabelVolume: r.Mark},
	})
	if errors.Is(err, api.ErrConflict) {
		err = fmt.Errorf("%w; -o workspace=%s makes a volume of a workspace that is there", err, r.Workspace)
	}
	if err == nil {
		if err = p.put(v, r.with(func(r *record) { r.Workspace, r.Making = w.ID, false })); err != nil {
			err = errors.Join(err, p.forget(context.WithoutCancel(ctx), r))
		}
	}
	if err != nil {
		return errors.Join(err, p.drop(v, name))
	}
	return nil
}

// many reports whether there are as many volumes as there may be.
func (p *Plugin) many() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.volumes) > maxVolumes // the new one is among them
}

// forget destroys the workspace of a volume that did not come to be, if there is one.
func (p *Plugin) forget(ctx context.Context, r *record) error {
	for l := range p.service.Labelled(LabelVolume) {
		if l.Labels[LabelVolume] != r.Mark {
			continue
		}
		_, err := p.service.Destroy(ctx, api.DestroyRequest{Access: r.access(), Ref: l.Workspace, Now: true})
		return err
	}
	return nil
}

// remove ends a volume. A workspace that was made with it is destroyed; snapshots stay, and what none of them has
// becomes one for a week.
func (p *Plugin) remove(ctx context.Context, name string) error {
	v, done, err := p.holdKnown(name)
	if err != nil {
		return err
	}
	defer done()
	r := v.rec.Load()
	w, err := p.workspace(ctx, r)
	if errors.Is(err, api.ErrNotFound) {
		return p.drop(v, name)
	}
	if err != nil {
		return err
	}
	if len(r.Uses) > 0 {
		by, err := p.service.UsedBy(ctx, w.ID)
		if err != nil {
			return err
		}
		if by != "" {
			return fmt.Errorf("%w: volume %s is in use by %d containers: %s", api.ErrConflict, name, len(r.Uses), by)
		}
		p.log.WarnContext(ctx, "uses of a volume that nothing has mounted are given up", "volume", name, "uses", len(r.Uses))
	}
	if r.Own && w.State == api.Mounted && w.Mountpoint == r.At {
		if _, err := p.service.Unmount(ctx, api.UnmountRequest{Access: r.access(), Workspace: w.ID}); err != nil {
			return err
		}
	}
	if r.Mark != "" {
		_, err := p.service.Destroy(ctx, api.DestroyRequest{Access: r.access(), Ref: w.ID})
		if err != nil && !errors.Is(err, api.ErrNotFound) {
			return err
		}
	}
	return p.drop(v, name)
}

// mount adds a use of a volume, or counts one that is there once more, and gives where its workspace is mounted.
func (p *Plugin) mount(ctx context.Context, name, id string) (string, error) {
	if err := validUse(id); err != nil {
		return "", err
	}
	v, done, err := p.holdKnown(name)
	if err != nil {
		return "", err
	}
	defer done()
	r := v.rec.Load()
	uses, err := p.begun(ctx, r, id)
	if err != nil {
		return "", err
	}
	at, own, err := p.mounted(ctx, r)
	if err != nil {
		return "", err
	}
	undo := func() {
		if own && len(r.Uses) == 0 {
			p.release(context.WithoutCancel(ctx), r.with(func(r *record) { r.At, r.Own = at, own }))
		}
	}
	if err := seenBy(sandbox.ProcessOf(ctx), at); err != nil {
		undo()
		return "", fmt.Errorf("volume %s: %w", name, err)
	}
	if err := ctx.Err(); err != nil { // who asked has no answer, and knows of no use
		undo()
		return "", fmt.Errorf("volume %s: %w", name, err)
	}
	err = p.put(v, r.with(func(r *record) { r.At, r.Own, r.Boot, r.Uses = at, own, p.store.boot, uses }))
	if err != nil {
		undo()
		return "", err
	}
	return at, nil
}

// mounted mounts the workspace of a volume unless it is mounted. It gives where, and whether that is for the uses
// alone.
func (p *Plugin) mounted(ctx context.Context, r *record) (at string, own bool, err error) {
	w, err := p.workspace(ctx, r)
	if err != nil {
		return "", false, fmt.Errorf("volume %s: %w", r.Name, err)
	}
	if w.State == api.Mounted {
		return w.Mountpoint, r.Own && r.At == w.Mountpoint, nil
	}
	o, err := parseOptions(r.Options, os.Geteuid() != 0)
	if err != nil {
		return "", false, fmt.Errorf("volume %s: %w", r.Name, err)
	}
	w, err = p.service.Mount(inOwnNamespace(ctx), api.MountRequest{
		Access: r.access(), Workspace: w.ID, MountOptions: o.mount,
		Mountpoint: api.ServiceMountpoint(p.service.Dir(), w.ID), MakeMountpoint: true,
	})
	if err != nil {
		return "", false, fmt.Errorf("volume %s: %w", r.Name, err)
	}
	return w.Mountpoint, true, nil
}

// unmount ends a use of a volume; one that is not there has ended before. The last one ends the mount, if that is for the
// uses alone.
func (p *Plugin) unmount(ctx context.Context, name, id string) error {
	if err := validUse(id); err != nil {
		return err
	}
	v, done, err := p.holdKnown(name)
	if err != nil {
		return err
	}
	defer done()
	r := v.rec.Load()
	i := r.find(id)
	if i < 0 && !v.stale {
		return nil
	}
	next := r
	if i >= 0 {
		next = r.with(func(r *record) { r.Uses = p.ended(ctx, r, i) })
	}
	if p.forgotten(ctx, next) {
		p.log.InfoContext(ctx, "uses of a volume end with their engine", "volume", name, "uses", len(next.Uses))
		next = next.with(func(r *record) { r.Uses = nil })
	}
	if len(next.Uses) == 0 && p.release(ctx, next) {
		next = next.with(func(r *record) { r.At, r.Own = "", false })
	}
	if err := p.put(v, next); err != nil {
		// The container has ended, whether there is room to write that down or not.
		p.log.WarnContext(ctx, "the end of a use is written down later", "volume", name, "error", err)
		v.rec.Store(next)
		v.stale = true
	}
	return nil
}

// release ends the mount of a volume that nobody uses any more, and reports whether it is not the plugin's any longer. A
// program of the host that uses it keeps it.
func (p *Plugin) release(ctx context.Context, r *record) bool {
	if !r.Own {
		return true
	}
	w, err := p.workspace(ctx, r)
	if err == nil && (w.State != api.Mounted || w.Mountpoint != r.At) {
		return true // somebody else has ended it, or mounted it elsewhere
	}
	if err == nil {
		_, err = p.service.Unmount(ctx, api.UnmountRequest{Access: r.access(), Workspace: w.ID})
	}
	if err != nil {
		p.log.WarnContext(ctx, "a volume stays mounted", "volume", r.Name, "error", err)
	}
	return err == nil
}
