package sandbox

import (
	"cmp"
	"context"
	"fmt"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
)

// Rename gives a workspace or a snapshot another name. A workspace keeps its snapshots, its mount and its state; its log
// goes on under the new name. The table of mounts has the old name until it is mounted again. Refs that have the old
// name go on naming the snapshots. ErrConflict if the name is taken, also by snapshots of a workspace that is gone.
func (h *Home) Rename(ctx context.Context, r RenameRequest) (Object, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Object{}, err
	}
	defer end()
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return Object{}, err
	}
	w, s, err := h.useObject(ctx, r.Access, r.Ref, "rename")
	if err != nil {
		return Object{}, err
	}
	if w != nil {
		if err := h.changeable(w); err != nil {
			return Object{}, err
		}
		if err := h.renameWorkspace(ctx, who, w.ID, r.Name); err != nil {
			return Object{}, err
		}
		d, err := h.describe(h.catalog.Workspace(r.Name))
		return Object{Workspace: &d}, err
	}
	if s, err = h.renameSnapshot(ctx, who, s, r.Name); err != nil {
		return Object{}, err
	}
	d, err := h.describeSnapshot(s, maxPage)
	return Object{Snapshot: &d}, err
}

// renameSnapshot gives a snapshot another name.
func (h *Home) renameSnapshot(
	ctx context.Context, who asker, s *catalog.Snapshot, name string,
) (*catalog.Snapshot, error) {
	if workspace, alone, ok := api.SplitRef(name); ok && workspace == s.Workspace {
		name = alone
	}
	if name == "" {
		return nil, fmt.Errorf("%w: the new name is empty", ErrInvalid)
	}
	if err := api.ValidSnapshotName(name); err != nil {
		return nil, err
	}
	unlock, err := h.ops.Lock(ctx, s.Workspace) // whoever takes a snapshot of the workspace has it, too
	if err != nil {
		return nil, err
	}
	defer unlock()
	_, err = h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		now, err := h.still(s)
		if err != nil || now.Name == name {
			return err
		}
		if err := h.freeName(now.Workspace, name); err != nil {
			return err
		}
		next := *now
		next.Name = name
		ch.PutSnapshots = append(ch.PutSnapshots, &next)
		detail := "to " + cmp.Or(name, "no name")
		if now.Name != "" {
			detail = now.Name + " " + detail
		}
		ch.Events = append(ch.Events, h.event(EventRenamed, now.Workspace, who.session, now.ID, detail))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h.still(s)
}

// renameWorkspace gives a workspace another name.
func (h *Home) renameWorkspace(ctx context.Context, who asker, old, name string) error {
	if err := ValidWorkspaceName(name); err != nil {
		return err
	}
	if name == old {
		return nil
	}
	// The new name's lock is taken without waiting, so that the order of the two does not matter.
	unlockNew, err := h.reserveName(who, name)
	if err != nil {
		return err
	}
	defer unlockNew()
	unlock, err := h.ops.Lock(ctx, old)
	if err != nil {
		return err
	}
	defer unlock()
	if err := h.noneLeft(who, name); err != nil {
		return err
	}
	l := h.liveOf(old)
	if l != nil {
		l.names.Store(&liveNames{now: name, before: old})
	}
	if err := h.recordRename(ctx, old, name); err != nil {
		if l != nil {
			l.names.Store(&liveNames{now: old})
		}
		return err
	}
	h.accounts.rename(old, name)
	if l == nil {
		return nil
	}
	h.mu.Lock()
	if h.live[old] == l {
		delete(h.live, old)
		h.live[name] = l
	}
	h.mu.Unlock()
	l.names.Store(&liveNames{now: name})
	if done, ok := l.use(); ok {
		defer done()
		defer l.lockStack()()
		l.stack.Hold(layerstore.Hold{Workspace: name})
	}
	return nil
}

// noneLeft refuses a name of which there are snapshots. It tells the asker the id only of one that it may use.
func (h *Home) noneLeft(who asker, name string) error {
	own := h.catalog.NewestSnapshot(name, func(s *catalog.Snapshot) bool { return who.may(s.Session) })
	switch {
	case own != nil:
		return fmt.Errorf("%w: there are snapshots of an earlier workspace %s, such as %s: delete them, or choose "+
			"another name", ErrConflict, name, own.ID)
	case h.catalog.NewestSnapshot(name, func(*catalog.Snapshot) bool { return true }) != nil:
		return fmt.Errorf("%w: there are snapshots of an earlier workspace %s, which belong to another session: "+
			"choose another name", ErrConflict, name)
	}
	return nil
}

// recordRename makes a new name durable. The caller holds the locks of both.
func (h *Home) recordRename(ctx context.Context, old, name string) error {
	w := h.catalog.Workspace(old)
	if w == nil {
		return fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(old))
	}
	there, err := h.catalog.PositionsIn(ctx, w.Session, old)
	if err != nil {
		return err
	}
	gone, err := h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		w := h.catalog.Workspace(old)
		if w == nil {
			return fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(old))
		}
		for _, p := range there {
			p.Workspace = name
			ch.PutPositions = append(ch.PutPositions, p)
		}
		next := *w
		next.ID = name
		if w.Mount != nil && w.Mount.Mounted && w.Mount.Source == "" {
			mount := *w.Mount
			mount.Source = old
			next.Mount = &mount
		}
		ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
		ch.DelWorkspaces = append(ch.DelWorkspaces, w)
		for _, other := range h.catalog.Workspaces() {
			if other.ID != old && other.Source == forkSource+old {
				next := *other
				next.Source = forkSource + name
				ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
			}
		}
		ch.Rename = &catalog.Rename{ID: h.catalog.NewID(), Old: old, New: name}
		ch.Events = append(ch.Events,
			h.event(EventRenamed, old, w.Session, "", "to "+name), h.event(EventRenamed, name, w.Session, "", "from "+old))
		return nil
	})
	h.cache.Forget(gone)
	return err
}
