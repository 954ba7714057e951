package sandbox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// maxPage is how many objects a page has if the caller does not say, and at most.
const maxPage = 100

// pageLimit is how many objects a page has.
func pageLimit(r ListRequest) (int, error) {
	switch {
	case r.Limit < 0:
		return 0, fmt.Errorf("%w: limit %d is negative", ErrInvalid, r.Limit)
	case r.Limit == 0 || r.Limit > maxPage:
		return maxPage, nil
	}
	return r.Limit, nil
}

// Workspaces lists workspaces in order of names, or the newest first: the own session's, or all if cross-session access
// is allowed. After is the Cursor of the last one of the page before, which need not exist any more. Asked for those of
// one name, it is ErrNotFound or ErrRefused where there is none, or another's.
func (h *Home) Workspaces(ctx context.Context, r ListRequest) (WorkspacePage, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return WorkspacePage{}, err
	}
	defer end()
	cursor := ValidWorkspaceName
	if r.NewestFirst {
		cursor = func(after string) (err error) {
			r.After, err = h.madeKey(after)
			return err
		}
	}
	session, limit, err := h.checkList(ctx, &r, cursor)
	if err != nil {
		return WorkspacePage{}, err
	}
	var mounts mountTable
	if h.Mounts() > 0 {
		if mounts, err = h.mounts.read(); err != nil {
			return WorkspacePage{}, err
		}
	}
	page := WorkspacePage{Workspaces: []Workspace{}}
	crossed := crossing{}
	for w := range h.catalog.ListWorkspaces(listQuery(r, session)) {
		if w.View && !r.Views {
			continue
		}
		if len(page.Workspaces) == limit {
			page.More = true
			break
		}
		page.Workspaces = append(page.Workspaces, h.describeWith(w, mounts))
		crossed.note(w.Session, session, w.ID)
	}
	if len(page.Workspaces) == 0 {
		if err := h.mayName(r.Access, session, r.Workspace); err != nil {
			return WorkspacePage{}, err
		}
	}
	return page, crossed.audit(ctx, h, session, "list")
}

// madeKey reads the cursor of a list of workspaces of which the newest is first. The name of one that is there does, too.
func (h *Home) madeKey(after string) (string, error) {
	if w := h.catalog.Workspace(after); w != nil {
		return catalog.MadeKey(w.CreatedAt, w.ID), nil
	}
	at, name, _ := strings.Cut(after, "/")
	made, err := time.Parse(time.RFC3339Nano, at)
	if err != nil || ValidWorkspaceName(name) != nil {
		return "", fmt.Errorf("%w: cursor %s is neither a workspace nor TIME/NAME of one", ErrInvalid, api.Quoted(after))
	}
	return catalog.MadeKey(made, name), nil
}

// Snapshots lists snapshots, the oldest or the newest first: the own session's, or all if cross-session
// access is allowed. After is the id of the last one of the page before, which need not exist any more. Asked for those
// of a workspace, it is ErrNotFound if neither the workspace nor a snapshot of it exists, ErrRefused if all that exists
// is another session's.
func (h *Home) Snapshots(ctx context.Context, r ListRequest) (SnapshotPage, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return SnapshotPage{}, err
	}
	defer end()
	session, limit, err := h.checkList(ctx, &r, func(after string) error {
		if !api.IsID(after) {
			return fmt.Errorf("%w: cursor %s is not the id of a snapshot", ErrInvalid, api.Quoted(after))
		}
		return nil
	})
	if err != nil {
		return SnapshotPage{}, err
	}
	var records []*catalog.Snapshot
	page := SnapshotPage{Snapshots: []Snapshot{}}
	crossed := crossing{}
	for s := range h.catalog.ListSnapshots(listQuery(r, session)) {
		if page.More = len(records) == limit; page.More {
			break
		}
		records = append(records, s)
		crossed.note(s.Session, session, s.Workspace)
	}
	for _, s := range records {
		d, err := h.describeSnapshot(s, maxPage)
		if h.catalog.Snapshot(s.ID) == nil {
			continue // deleted meanwhile
		}
		if err != nil {
			return SnapshotPage{}, err
		}
		page.Snapshots = append(page.Snapshots, d)
	}
	if len(records) == 0 {
		if err := h.mayName(r.Access, session, r.Workspace); err != nil {
			return SnapshotPage{}, err
		}
	}
	return page, crossed.audit(ctx, h, session, "list snapshots")
}

// checkList validates a request, and puts the name of a workspace in the place of a path; cursor says what After may be.
func (h *Home) checkList(
	ctx context.Context, r *ListRequest, cursor func(string) error,
) (session string, limit int, err error) {
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return "", 0, err
	}
	session = who.session
	if limit, err = pageLimit(*r); err != nil {
		return "", 0, err
	}
	if r.After != "" {
		if err := cursor(r.After); err != nil {
			return "", 0, err
		}
	}
	r.Workspace, err = h.workspaceName(who, r.Workspace)
	return session, limit, err
}

// listQuery asks for what a list shows.
func listQuery(r ListRequest, session string) catalog.Query {
	q := query(r.Access, session, r.Workspace, r.After)
	q.Newest = r.NewestFirst
	return q
}

// query asks for what a session may see, of one workspace if that is named, after a cursor.
func query(a Access, session, workspace, after string) catalog.Query {
	q := catalog.Query{Session: session, Workspace: workspace, After: after}
	if a.AllowCrossSession {
		q.Session = ""
	}
	return q
}

// mayName judges the name of a workspace of which a list has nothing: one that never was, or that is not the session's,
// is an error. One that is destroyed goes on to have a name while it has a snapshot. The name "" is none.
func (h *Home) mayName(a Access, session, name string) error {
	if name == "" {
		return nil
	}
	known, own := false, false
	see := func(owner string) {
		known, own = true, own || a.Allows(owner, session)
	}
	if w := h.catalog.Workspace(name); w != nil {
		see(w.Session)
	}
	for s := range h.catalog.ListSnapshots(catalog.Query{Workspace: name}) {
		if see(s.Session); own {
			break
		}
	}
	switch {
	case !known:
		return fmt.Errorf("%w: workspace %s", ErrNotFound, api.Quoted(name))
	case !own:
		return refused("workspace", name)
	}
	return nil
}

// crossing has, by workspace, the owners of what a list showed to another session.
type crossing map[string]string

func (c crossing) note(owner, session, workspace string) {
	if owner != session {
		c[workspace] = owner
	}
}

func (c crossing) audit(ctx context.Context, h *Home, session, what string) error {
	for workspace, owner := range c {
		if err := h.audit(ctx, session, owner, workspace, "", what); err != nil {
			return err
		}
	}
	return nil
}

// Show describes what a reference names.
func (h *Home) Show(ctx context.Context, r RefRequest) (Object, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return Object{}, err
	}
	defer end()
	w, s, err := h.useObject(ctx, r.Access, r.Ref, "show")
	if err != nil {
		return Object{}, err
	}
	if w != nil {
		d, err := h.describe(w)
		if l := h.liveOf(w.ID); l != nil {
			d.Requests = l.mount.Requests()
		}
		return Object{Workspace: &d}, err
	}
	d, err := h.describeSnapshot(s, math.MaxInt)
	return Object{Snapshot: &d}, err
}

// describe is the public form of a workspace.
func (h *Home) describe(w *catalog.Workspace) (Workspace, error) {
	if w == nil {
		return Workspace{}, fmt.Errorf("%w: the workspace has just been destroyed", ErrNotFound)
	}
	var mounts mountTable
	if l := h.liveOf(w.ID); l != nil && !l.shown.Load().attached.Visible() {
		var err error
		if mounts, err = h.mounts.read(); err != nil {
			return Workspace{}, err
		}
	}
	return h.describeWith(w, mounts), nil
}

// describeWith is describe with a table of mounts, which need not have a mount that is visible where it was made.
func (h *Home) describeWith(w *catalog.Workspace, mounts mountTable) Workspace {
	d := Workspace{
		ID: w.ID, Session: w.Session, Origin: w.Origin, Head: w.Head, CreatedAt: w.CreatedAt, Source: w.Source,
		State: Unmounted, Paused: w.Paused, Cgroup: cmp.Or(frozenFor(w).String(), w.Cgroup), Foreign: w.IsForeign(),
		View: w.View, Labels: maps.Clone(w.Labels), Quota: h.describeQuota(w), Engine: w.Engine,
	}
	if stack, err := h.catalog.Head(w.Base, 0); err == nil { // a broken one is Check's to report
		d.Layers = stack.Depth
		d.Problem = h.storer.ProblemOf(w.Base)
		d.Import = h.importOf(w.Base)
	}
	if l := h.liveOf(w.ID); l != nil {
		if d.State = l.reported(mounts); d.State == Unmounted {
			d.LastMountpoint = l.at().path
			return d
		}
		options := l.options()
		at := l.at()
		if at.view.own() || at.view.chroot { // the table is that of this process
			at.path = cmp.Or(l.movedTo(mounts), at.path)
		}
		d.Mountpoint, d.ReadOnly, d.Transport = at.path, options.ReadOnly, l.mount.Transport()
		d.NoSUID, d.NoDev, d.Engine = options.NoSUID, options.NoDev, options.Engine
	} else if w.Mount != nil {
		d.LastMountpoint = w.Mount.Mountpoint
	}
	return d
}

// describeSnapshot is the public form of a snapshot, with at most so many of its layers. It is stored when all of its
// layers are.
func (h *Home) describeSnapshot(s *catalog.Snapshot, most int) (Snapshot, error) {
	d := Snapshot{
		ID: s.ID, Workspace: s.Workspace, Session: s.Session, Name: s.Name, Description: s.Description,
		Parent: s.Parent, State: Stored, CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt, Layers: []Layer{},
		Unchanged: s.Unchanged, Turn: s.Turn, Unsaved: s.Unsaved, Foreign: h.foreignSnapshot(s),
		Ref: Ref{ProviderID: ProviderID, Ref: RefPayload{Snapshot: s.ID, Workspace: s.Workspace}},
	}
	stack, err := h.catalog.Head(s.Top, most)
	if err != nil {
		return d, err
	}
	d.Depth = stack.Depth
	if stack.Sealed > 0 {
		d.State = Sealed
	}
	d.Problem = h.storer.ProblemOf(s.Top)
	d.Layers = slices.Grow(d.Layers, len(stack.Layers))
	for _, l := range stack.Layers {
		layer := Layer{ID: l.ID, State: l.State, Size: l.Size, Digest: l.Digest}
		if l.State != Stored {
			layer.Problem = h.storer.Problem(l.ID)
		}
		d.Layers = append(d.Layers, layer)
	}
	return d, nil
}
