package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// useWorkspace finds a workspace by its name, checks that the asker may use it, and audits a crossing.
func (h *Home) useWorkspace(ctx context.Context, a Access, name, what string) (*catalog.Workspace, error) {
	session, err := a.SessionID()
	if err != nil {
		return nil, err
	}
	if err := ValidWorkspaceName(name); err != nil {
		return nil, err
	}
	w := h.catalog.Workspace(name)
	if w == nil {
		return nil, fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
	}
	if !a.Allows(w.Session, session) {
		return nil, refused("workspace", name)
	}
	return w, h.audit(ctx, session, w.Session, w.ID, "", what)
}

// useSnapshot finds a snapshot by id, unique prefix of one, name or Ref, checks that the asker may use it, and audits a
// crossing.
func (h *Home) useSnapshot(ctx context.Context, a Access, ref, what string) (*catalog.Snapshot, error) {
	session, err := a.SessionID()
	if err != nil {
		return nil, err
	}
	s, err := h.findSnapshot(a, session, ref)
	if err != nil {
		return nil, err
	}
	return s, h.audit(ctx, session, s.Session, s.Workspace, s.ID, what)
}

// findSnapshot is useSnapshot without the audit. What another session owns counts only if the asker may use it, so that
// neither a name nor a prefix of its own becomes ambiguous by those of other sessions.
func (h *Home) findSnapshot(a Access, session, ref string) (*catalog.Snapshot, error) {
	if api.IsRef(ref) {
		return h.snapshotOfRef(a, session, ref)
	}
	if err := api.ValidReference(ref); err != nil {
		return nil, err
	}
	if api.IsID(ref) {
		s := h.catalog.Snapshot(ref)
		switch {
		case s == nil:
			return nil, fmt.Errorf("%w: snapshot %s", ErrNotFound, api.Quoted(ref))
		case !a.Allows(s.Session, session):
			return nil, refused("snapshot", ref)
		}
		return s, nil
	}
	var matches []*catalog.Snapshot
	foreign := false
	for _, s := range h.catalog.FindSnapshots(ref, api.IsPrefix(ref)) {
		if a.Allows(s.Session, session) {
			matches = append(matches, s)
		} else {
			foreign = true
		}
	}
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) > 1:
		return nil, fmt.Errorf("%w: %s names several snapshots: %s", ErrConflict, api.Quoted(ref), idList(matches))
	case foreign:
		return nil, refused("snapshot", ref)
	}
	return nil, fmt.Errorf("%w: snapshot %s", ErrNotFound, api.Quoted(ref))
}

// snapshotOfRef finds the snapshot of a Ref and holds what that says against the record.
func (h *Home) snapshotOfRef(a Access, session, ref string) (*catalog.Snapshot, error) {
	r, err := ParseRef(ref)
	if err != nil {
		return nil, err
	}
	s, err := h.findSnapshot(a, session, r.Ref.Snapshot)
	if err == nil && s.Workspace != r.Ref.Workspace {
		return nil, fmt.Errorf("%w: ref %s: snapshot %s is not of workspace %s",
			ErrInvalid, api.Quoted(ref), s.ID, r.Ref.Workspace)
	}
	return s, err
}

// idList spells ids for a message, bounded.
func idList(all []*catalog.Snapshot) string {
	const most = 10
	var ids []string
	for _, s := range all[:min(len(all), most)] {
		ids = append(ids, s.ID)
	}
	list := strings.Join(ids, ", ")
	if len(all) > most {
		list += fmt.Sprintf(" and %d more", len(all)-most)
	}
	return list
}

// useObject finds the workspace or the snapshot that ref names; ErrConflict if it names one of each.
func (h *Home) useObject(
	ctx context.Context, a Access, ref, what string,
) (*catalog.Workspace, *catalog.Snapshot, error) {
	session, err := a.SessionID()
	if err != nil {
		return nil, nil, err
	}
	s, serr := h.findSnapshot(a, session, ref)
	w := (*catalog.Workspace)(nil)
	if ValidWorkspaceName(ref) == nil {
		w = h.catalog.Workspace(ref)
	}
	switch {
	case w != nil && s != nil:
		return nil, nil, fmt.Errorf("%w: %s names the workspace %s and the snapshot %s",
			ErrConflict, api.Quoted(ref), w.ID, s.ID)
	case w != nil && !a.Allows(w.Session, session):
		return nil, nil, refused("workspace", ref)
	case w != nil:
		return w, nil, h.audit(ctx, session, w.Session, w.ID, "", what)
	case s != nil:
		return nil, s, h.audit(ctx, session, s.Session, s.Workspace, s.ID, what)
	}
	if errors.Is(serr, ErrNotFound) {
		return nil, nil, fmt.Errorf("%w: no workspace and no snapshot is named %s", ErrNotFound, api.Quoted(ref))
	}
	return nil, nil, serr
}
