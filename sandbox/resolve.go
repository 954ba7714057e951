package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/peer"
)

// How objects are named. A workspace: by its name, or by a path inside its mount. A snapshot, in this order:
//
//	{"providerId":…      the JSON form of its Ref
//	WORKSPACE:NAME       and PATH:NAME; also with an id, or a prefix of one, in the place of NAME
//	0199d5a4-…           its id, or a unique prefix of that
//	NAME                 of the workspace that the call is about, if it is about one; else of its history; else of any
//
// Since a name cannot be taken for a path, an id or a workspace when it is given (api.ValidSnapshotName, freeName), only
// one of these fits. Names that earlier versions have given are found as far as that is unambiguous. What another
// session owns counts only if the asker may use it: no name and no prefix becomes ambiguous by those of others.

// asker is who asks.
type asker struct {
	access  Access
	session string
	other   bool // another user than that of this process, or none of this machine: no path is looked up for it
}

// newAsker gives who asks; ErrInvalid for a malformed session, ErrRefused for one that the caller is not bound to.
func newAsker(ctx context.Context, a Access) (asker, error) {
	session, err := a.SessionID()
	by := caller.From(ctx)
	if err == nil {
		err = by.May(a)
	}
	return asker{a, session, peer.From(ctx) != nil || by.Remotely()}, err
}

// byOwner reports whether a call is made by who runs the daemon, or by the program itself: others are bound to
// sessions.
func byOwner(ctx context.Context) bool {
	by := caller.From(ctx)
	return peer.From(ctx) == nil && (by == nil || by.Trusted)
}

// may reports whether the asker may use what a session owns.
func (a asker) may(owner string) bool { return a.access.Allows(owner, a.session) }

// useWorkspace finds a workspace by its name or a path, checks that the asker may use it, and audits a crossing.
func (h *Home) useWorkspace(ctx context.Context, a Access, name, what string) (*catalog.Workspace, error) {
	who, err := newAsker(ctx, a)
	if err != nil {
		return nil, err
	}
	w, err := h.findWorkspace(who, name)
	if err != nil {
		return nil, err
	}
	return w, h.audit(ctx, who.session, w.Session, w.ID, "", what)
}

// findWorkspace is useWorkspace without the audit.
func (h *Home) findWorkspace(who asker, name string) (*catalog.Workspace, error) {
	if api.IsPath(name) {
		at, err := h.workspaceAt(who, LocateRequest{Path: name})
		if err != nil {
			return nil, err
		}
		return h.locatedWorkspace(who, at, name)
	}
	if err := ValidWorkspaceName(name); err != nil {
		if s, _ := h.findSnapshot(who, nil, name); s != nil {
			return nil, fmt.Errorf("%w: workspace %s: that is a snapshot: branch it for a workspace",
				ErrNotFound, api.Quoted(name))
		}
		return nil, err
	}
	w := h.catalog.Workspace(name)
	if w == nil {
		return nil, h.noWorkspace(who, name)
	}
	if !who.may(w.Session) {
		return nil, refusedError{"workspace", name, h.noWorkspace(who, name)}
	}
	return w, nil
}

// workspaceName gives the name of a workspace that may be destroyed, and may be named by a path; "" for "".
func (h *Home) workspaceName(who asker, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	if api.IsPath(ref) {
		w, err := h.findWorkspace(who, ref)
		if err != nil {
			return "", err
		}
		return w.ID, nil
	}
	return ref, ValidWorkspaceName(ref)
}

// locatedWorkspace gives the workspace that was found at a path.
func (h *Home) locatedWorkspace(who asker, name, path string) (*catalog.Workspace, error) {
	w := h.catalog.Workspace(name)
	switch {
	case w == nil:
		return nil, h.nowhere(path)
	case !who.may(w.Session):
		return nil, refusedError{"the workspace at", path, h.nowhere(path)}
	}
	return w, nil
}

// useSnapshot finds a snapshot, checks that the asker may use it, and audits a crossing.
func (h *Home) useSnapshot(ctx context.Context, a Access, ref, what string) (*catalog.Snapshot, error) {
	return h.useSnapshotOf(ctx, a, nil, ref, what)
}

// useSnapshotOf is useSnapshot for a call that is about a workspace, whose snapshots a name alone means first; nil if it
// is about none.
func (h *Home) useSnapshotOf(
	ctx context.Context, a Access, of *catalog.Workspace, ref, what string,
) (*catalog.Snapshot, error) {
	who, err := newAsker(ctx, a)
	if err != nil {
		return nil, err
	}
	s, err := h.findSnapshot(who, of, ref)
	if err != nil {
		return nil, err
	}
	return s, h.audit(ctx, who.session, s.Session, s.Workspace, s.ID, what)
}

// findSnapshot is useSnapshotOf without the audit.
func (h *Home) findSnapshot(who asker, of *catalog.Workspace, ref string) (*catalog.Snapshot, error) {
	if api.IsRef(ref) {
		return h.snapshotOfRef(who, ref)
	}
	if err := api.ValidReference(ref); err != nil {
		return nil, err
	}
	if api.IsID(ref) {
		return h.allowedOne(who, ref, h.catalog.Snapshot(ref), func() error {
			return fmt.Errorf("%w: snapshot %s", ErrNotFound, api.Quoted(ref))
		})
	}
	if workspace, rest, ok := api.SplitRef(ref); ok {
		s, err := h.snapshotOf(who, workspace, rest)
		if !errors.Is(err, ErrNotFound) {
			return s, err
		}
		if old := h.catalog.FindSnapshots(ref, false); len(old) == 0 { // no name of an earlier version
			return nil, err
		}
	}
	if of != nil {
		s := h.catalog.SnapshotCalled(of.ID, ref)
		if s != nil && !api.IsPrefix(ref) && who.may(s.Session) && of.Took(s) {
			return s, nil
		}
	}
	matches, foreign := h.allowed(who, h.catalog.FindSnapshots(ref, api.IsPrefix(ref)))
	if of != nil && len(matches) > 1 {
		own := slices.DeleteFunc(slices.Clone(matches), func(s *catalog.Snapshot) bool { return !h.ofHistory(of, s) })
		if len(own) > 0 {
			matches = own
		}
	}
	switch {
	case len(matches) > 1:
		return nil, fmt.Errorf("%w: %s names several snapshots: %s: say which one",
			ErrConflict, api.Quoted(ref), listed(ref, matches))
	case len(matches) == 1 && of == nil && h.isWorkspace(who, ref):
		return nil, fmt.Errorf("%w: %s is the name of a workspace, too: the snapshot is %s",
			ErrConflict, ref, spelt(ref, matches[0]))
	case len(matches) == 1:
		return matches[0], nil
	case foreign:
		return nil, refusedError{"snapshot", ref, h.noSnapshot(who, of, ref)}
	}
	return nil, h.noSnapshot(who, of, ref)
}

// allowedOne gives the snapshot that was found for a reference, nil for none, if the asker may use it. absent
// says that there is none.
func (h *Home) allowedOne(
	who asker, ref string, s *catalog.Snapshot, absent func() error,
) (*catalog.Snapshot, error) {
	switch {
	case s == nil:
		return nil, absent()
	case !who.may(s.Session):
		return nil, refusedError{"snapshot", ref, absent()}
	}
	return s, nil
}

// allowed picks what the asker may use; foreign tells that there is more.
func (h *Home) allowed(who asker, all []*catalog.Snapshot) (own []*catalog.Snapshot, foreign bool) {
	for _, s := range all {
		if who.may(s.Session) {
			own = append(own, s)
		} else {
			foreign = true
		}
	}
	return own, foreign
}

// snapshotOf finds a snapshot of a workspace, which may be destroyed, by its name, its id or a prefix of that.
func (h *Home) snapshotOf(who asker, workspace, rest string) (*catalog.Snapshot, error) {
	if api.IsPath(workspace) {
		at, err := h.workspaceAt(who, LocateRequest{Path: workspace})
		if err != nil {
			return nil, err
		}
		workspace = at
	}
	if s := h.catalog.SnapshotCalled(workspace, rest); s != nil {
		return h.allowedOne(who, workspace+":"+rest, s, func() error { return h.noSnapshotOf(who, workspace, rest) })
	}
	var matches []*catalog.Snapshot
	if api.IsPrefix(rest) || api.IsID(rest) {
		for _, s := range h.catalog.FindSnapshots(rest, true) {
			if s.Workspace == workspace {
				matches = append(matches, s)
			}
		}
	}
	own, foreign := h.allowed(who, matches)
	switch {
	case len(own) > 1:
		return nil, fmt.Errorf("%w: %s names several snapshots: %s", ErrConflict, api.Quoted(rest), listed(rest, own))
	case len(own) == 1:
		return own[0], nil
	case foreign:
		return nil, refusedError{"snapshot", workspace + ":" + rest, h.noSnapshotOf(who, workspace, rest)}
	}
	return nil, h.noSnapshotOf(who, workspace, rest)
}

// snapshotOfRef finds the snapshot of a Ref and holds what that says against the record.
func (h *Home) snapshotOfRef(who asker, ref string) (*catalog.Snapshot, error) {
	r, err := ParseRef(ref)
	if err != nil {
		return nil, err
	}
	s, err := h.findSnapshot(who, nil, r.Ref.Snapshot)
	if err == nil && !h.catalog.WasOf(s, r.Ref.Workspace) {
		return nil, fmt.Errorf("%w: ref %s: snapshot %s is not of workspace %s",
			ErrInvalid, api.Quoted(ref), s.ID, r.Ref.Workspace)
	}
	return s, err
}

// useObject finds the workspace or the snapshot that ref names, checks that the asker may use it, and audits a crossing.
// A word that is the name of a workspace means that.
func (h *Home) useObject(
	ctx context.Context, a Access, ref, what string,
) (*catalog.Workspace, *catalog.Snapshot, error) {
	return h.useObjectOf(ctx, a, nil, ref, what)
}

// useObjectOf is to useObject what useSnapshotOf is to useSnapshot.
func (h *Home) useObjectOf(
	ctx context.Context, a Access, of *catalog.Workspace, ref, what string,
) (*catalog.Workspace, *catalog.Snapshot, error) {
	who, err := newAsker(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	w, s, err := h.findObject(who, of, ref)
	if err != nil {
		return nil, nil, err
	}
	return w, s, h.auditObject(ctx, who, w, s, what)
}

// auditObject audits the crossing of useObject.
func (h *Home) auditObject(
	ctx context.Context, who asker, w *catalog.Workspace, s *catalog.Snapshot, what string,
) error {
	if w != nil {
		return h.audit(ctx, who.session, w.Session, w.ID, "", what)
	}
	return h.audit(ctx, who.session, s.Session, s.Workspace, s.ID, what)
}

// findObject is useObjectOf without the audit.
func (h *Home) findObject(
	who asker, of *catalog.Workspace, ref string,
) (*catalog.Workspace, *catalog.Snapshot, error) {
	if err := validObject(ref); err != nil {
		return nil, nil, err
	}
	w, werr := h.objectWorkspace(who, ref)
	if w != nil && werr == nil {
		return w, nil, nil
	}
	s, err := h.findSnapshot(who, of, ref)
	_, _, two := api.SplitRef(ref)
	switch {
	case err == nil:
		return nil, s, nil
	case two || !errors.Is(err, ErrNotFound):
		return nil, nil, err
	case werr != nil:
		return nil, nil, werr
	}
	return nil, nil, h.nothing(who, ref)
}

// validObject refuses what can name neither a workspace nor a snapshot.
func validObject(ref string) error {
	if api.IsRef(ref) {
		return nil // bounded elsewhere
	}
	return api.ValidReference(ref)
}

// objectWorkspace gives the workspace that ref names, or nil if it names none; an error tells why the asker may not use
// it, or that a path is in none.
func (h *Home) objectWorkspace(who asker, ref string) (*catalog.Workspace, error) {
	if filepath.IsAbs(ref) {
		if h.isSnapshotPath(who, ref) {
			return nil, nil
		}
		return h.findWorkspace(who, ref)
	}
	if ValidWorkspaceName(ref) != nil || h.catalog.Workspace(ref) == nil {
		return nil, nil
	}
	return h.findWorkspace(who, ref)
}

// isSnapshotPath reports whether a path is PATH:NAME, of a snapshot. This process cannot look whether a file in its own
// mount is called so: PATH:NAME then means a snapshot of the workspace at PATH, unless another one is mounted at the whole.
func (h *Home) isSnapshotPath(who asker, ref string) bool {
	path, _, ok := api.SplitRef(ref)
	if !ok {
		return false
	}
	at, err := h.workspaceAt(who, LocateRequest{Path: path})
	if err != nil {
		return false
	}
	whole, err := h.workspaceAt(who, LocateRequest{Path: ref})
	return err != nil || whole == at
}

// isWorkspace reports whether a word is the name of a workspace that the asker may use.
func (h *Home) isWorkspace(who asker, word string) bool {
	w := h.catalog.Workspace(word)
	return w != nil && who.may(w.Session)
}

// ofHistory reports whether a snapshot is of a workspace's own history: it was taken of it, or is one of those on which
// it was made. Those are followed by their parents, and by the layers of the workspace where one is deleted.
func (h *Home) ofHistory(w *catalog.Workspace, s *catalog.Snapshot) bool {
	if w.Took(s) || s.Top != "" && h.catalog.Common(w.Base, s.Top) == s.Top {
		return true
	}
	for _, from := range []string{w.Head, w.Origin} {
		for at := h.catalog.Snapshot(from); at != nil && at.ID >= s.ID; at = h.catalog.Snapshot(at.Parent) {
			if at.ID == s.ID {
				return true
			}
			if at.Parent >= at.ID {
				break // damaged: a parent is older
			}
		}
	}
	return false
}

// freeName refuses a name for a snapshot that something else has: another snapshot of the same workspace, or a
// workspace. "" is free.
func (h *Home) freeName(workspace, name string) error {
	if name == "" {
		return nil
	}
	if s := h.catalog.SnapshotCalled(workspace, name); s != nil {
		return fmt.Errorf("%w: workspace %s has a snapshot %s already: %s",
			ErrConflict, workspace, api.Quoted(name), s.ID)
	}
	if h.catalog.Workspace(name) != nil {
		return fmt.Errorf("%w: %s is the name of a workspace: choose another one for the snapshot", ErrConflict, name)
	}
	return nil
}

// freeWord refuses a name for a new workspace by which the asker knows a snapshot: the one would be taken for the other.
func (h *Home) freeWord(who asker, name string) error {
	if same, _ := h.allowed(who, h.catalog.FindSnapshots(name, false)); len(same) > 0 {
		return fmt.Errorf("%w: %s is the name of a snapshot, %s: choose another one for the workspace",
			ErrConflict, name, spelt(name, same[0]))
	}
	return nil
}

// spelt is how a snapshot that a reference has found is named without doubt: by its workspace and its name, or by its id
// if it was found by that.
func spelt(ref string, s *catalog.Snapshot) string {
	if s.Name != ref || api.ValidSnapshotName(s.Name) != nil {
		return s.ID
	}
	return s.Workspace + ":" + s.Name
}

// listed spells snapshots for a message, bounded.
func listed(ref string, all []*catalog.Snapshot) string {
	const most = 10
	var names []string
	for _, s := range all[:min(len(all), most)] {
		names = append(names, spelt(ref, s))
	}
	list := strings.Join(names, ", ")
	if len(all) > most {
		list += fmt.Sprintf(" and %d more", len(all)-most)
	}
	return list
}
