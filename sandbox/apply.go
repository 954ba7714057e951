package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/threeway"
)

// appliedFor is for how long an apply can be undone.
const appliedFor = 7 * 24 * time.Hour

// Apply brings what was changed in a snapshot or a workspace into another workspace, mounted or not, as a merge with
// what both stem from. Programs see all of it at once. With conflicts nothing is changed, and no error is returned: the
// result lists them. ErrConflict if the target is mounted read-only. When it returns, the change survives a loss of power.
// The target may also be a directory of the host: what is changed there is kept before, so that it can be taken back, and
// the process that opens the home after a crash goes on. It is changed with the rights of whom the call is for.
func (h *Home) Apply(ctx context.Context, r ApplyRequest) (ApplyResult, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return ApplyResult{}, err
	}
	defer end()
	if r.Drop != "" {
		defer h.yielder.Begin()()
		return h.drop(ctx, r)
	}
	a, err := h.newApplication(ctx, r)
	if err != nil {
		return ApplyResult{}, err
	}
	if a.dir != "" && !r.Undo {
		if err := h.waitImported(ctx, a.from.top(), r.Progress); err != nil {
			return ApplyResult{}, err
		}
	}
	defer h.yielder.Begin()()
	if a.dir != "" {
		return a.applyToDirectory(ctx)
	}
	if r.Undo {
		return a.undo(ctx)
	}
	leave, err := h.working.diffs.Enter(ctx, a.session, nil)
	if err != nil {
		return ApplyResult{}, err
	}
	defer leave()
	for try := 1; ; try++ {
		done, err := a.look(ctx)
		if err == nil && !done {
			err = a.run(ctx)
		}
		// As in Diff.
		if try == diffAttempts || a.res.Applied || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESTALE) {
			return a.res, classify(err)
		}
	}
}

// application is one call of Apply.
type application struct {
	h       *Home
	req     ApplyRequest
	session string
	from    subject
	to      *catalog.Workspace
	dir     string            // in the place of to, a directory of the host, without symbolic links
	base    *catalog.Snapshot // that the call names; nil: the one that the home knows
	name    string            // of what is applied
	res     ApplyResult
	stale   staleReads
}

func (h *Home) newApplication(ctx context.Context, r ApplyRequest) (*application, error) {
	session, err := r.SessionID()
	if err != nil {
		return nil, err
	}
	a := &application{h: h, req: r, session: session}
	switch {
	case r.Conflicts != "" && resolutions[r.Conflicts] == threeway.Stop:
		return nil, fmt.Errorf("%w: what becomes of conflicts is %s, %s or %s, not %s", ErrInvalid,
			api.ConflictOurs, api.ConflictTheirs, api.ConflictMarkers, api.Quoted(r.Conflicts))
	case r.Undo && (r.From != "" && r.To != "" || r.Base != "" || r.Conflicts != "" || r.DryRun || r.Serializable):
		return nil, fmt.Errorf("%w: to undo takes a workspace or a directory and nothing else", ErrInvalid)
	case r.Force && !r.Undo:
		return nil, fmt.Errorf("%w: force is for an undo", ErrInvalid)
	}
	if r.Undo {
		name := r.To
		if name == "" {
			name = r.From
		}
		return a, a.target(ctx, name)
	}
	if a.from.workspace, a.from.snapshot, err = h.useObject(ctx, r.Access, r.From, "apply"); err != nil {
		return nil, err
	}
	if a.from.snapshot != nil {
		if err := h.restorable(a.from.snapshot); err != nil {
			return nil, err
		}
	}
	if a.from.snapshot != nil {
		a.name = fullName(a.from.snapshot)
	} else {
		a.name = a.from.workspace.ID
	}
	to := r.To
	if to == "" {
		if to, err = h.cameFrom(a.from); err != nil {
			return nil, err
		}
	}
	if err := a.target(ctx, to); err != nil {
		return nil, err
	}
	if a.to != nil && a.from.workspace != nil && a.from.workspace.ID == a.to.ID {
		return nil, fmt.Errorf("%w: %s is both what is applied and the target", ErrInvalid, a.to.ID)
	}
	if r.Base != "" {
		if a.base, err = h.useSnapshotOf(ctx, r.Access, a.to, r.Base, "apply from"); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// target finds the workspace or the directory that is to be changed.
func (a *application) target(ctx context.Context, name string) (err error) {
	if api.IsPath(name) {
		if a.dir, name, err = a.h.hostTarget(ctx, name, a.req.Inode); err != nil || a.dir != "" {
			return err
		}
	}
	a.to, err = a.h.useWorkspace(ctx, a.req.Access, name, "apply to")
	return err
}

// targetName is how the target is called in messages.
func (a *application) targetName() string {
	if a.dir != "" {
		return a.dir
	}
	return a.to.ID
}

// cameFrom is the workspace that something was made from, or the directory.
func (h *Home) cameFrom(s subject) (string, error) {
	w := s.workspace
	if w == nil {
		w = h.catalog.Workspace(s.snapshot.Workspace)
	}
	if w != nil && (s.snapshot == nil || w.Took(s.snapshot)) {
		if name, ok := strings.CutPrefix(w.Source, forkSource); ok && h.catalog.Workspace(name) != nil {
			return name, nil
		}
		if o := h.catalog.Snapshot(w.Origin); o != nil && o.Workspace != w.ID && h.catalog.Workspace(o.Workspace) != nil {
			return o.Workspace, nil
		}
	}
	if base, err := h.imported(s.top()); err == nil && base != nil {
		return base.Imported, nil
	}
	return "", fmt.Errorf("%w: it is not known to which workspace this is to be applied: name it (--to; in Go: To)",
		ErrInvalid)
}

// resolutions of conflicts by their names.
var resolutions = map[string]threeway.Resolve{
	"": threeway.Stop, api.ConflictOurs: threeway.Ours, api.ConflictTheirs: threeway.Theirs,
	api.ConflictMarkers: threeway.Markers,
}

// look plans with both trees as they are; done if there is nothing to do, or if nothing may be done.
func (a *application) look(ctx context.Context) (done bool, err error) {
	p, err := a.plan(ctx, subject{workspace: a.to})
	if err != nil {
		return false, err
	}
	defer p.close()
	a.tell(p.Plan)
	return a.req.DryRun || len(p.Conflicts) > 0 || p.Empty() || a.refused(), nil
}

// tell makes a plan the result.
func (a *application) tell(p *threeway.Plan) {
	a.res = ApplyResult{
		From: a.name, Directory: a.dir, Changes: []ApplyChange{}, Conflicts: []ApplyConflict{}, Merged: p.Merged,
		StaleReads: a.stale.list, MoreStaleReads: a.stale.more, ReadGaps: a.stale.gaps,
	}
	if a.to != nil {
		a.res.Workspace = a.to.ID
	}
	for _, c := range p.Changes() {
		change := ApplyChange{Kind: string(rune(c.Kind)), Path: c.Path, OldPath: c.OldPath}
		change.RawPath, change.RawOldPath = api.RawPath(c.Path), api.RawPath(c.OldPath)
		a.res.Changes = append(a.res.Changes, change)
	}
	for _, c := range p.Conflicts {
		a.res.Conflicts = append(a.res.Conflicts, ApplyConflict{Kind: c.Kind, Path: c.Path, RawPath: api.RawPath(c.Path), Detail: c.What})
	}
}

// run freezes both sides and changes the target.
func (a *application) run(ctx context.Context) error {
	h := a.h
	if err := errors.Join(h.withinLimits(a.session), h.roomInHome(ctx)); err != nil {
		return err
	}
	frozen, err := a.freezeFrom(ctx)
	if err != nil {
		return err
	}
	was := a.from
	a.from = subject{snapshot: frozen}
	defer func() { a.from = was }()
	unlock, err := h.ops.Lock(ctx, a.to.ID)
	if err != nil {
		return err
	}
	defer unlock()
	const attempts = 3 // with the last one, programs in the target wait
	for try := 1; ; try++ {
		if a.to = h.catalog.Workspace(a.to.ID); a.to == nil {
			return fmt.Errorf("%w: the workspace has just been destroyed", ErrNotFound)
		}
		if done, err := a.once(ctx, try == attempts); done || err != nil {
			return err
		}
	}
}

// freezeFrom gives a snapshot of what is applied.
func (a *application) freezeFrom(ctx context.Context) (*catalog.Snapshot, error) {
	h, w := a.h, a.from.workspace
	if w == nil {
		return h.still(a.from.snapshot)
	}
	unlock, err := h.ops.Lock(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if w = h.catalog.Workspace(w.ID); w == nil {
		return nil, fmt.Errorf("%w: the workspace has just been destroyed", ErrNotFound)
	}
	return a.freeze(ctx, w, "applied to "+a.targetName())
}

// freeze gives a snapshot of the present state of a workspace: its newest one, or a new one without a name. The caller
// holds the workspace's lock.
func (a *application) freeze(ctx context.Context, w *catalog.Workspace, why string) (*catalog.Snapshot, error) {
	h := a.h
	o, push, done, err := h.overlayOf(ctx, w, false)
	if err != nil {
		return nil, err
	}
	defer done()
	changed, err := h.changedIn(ctx, o, w.ID)
	if err != nil {
		return nil, err
	}
	now := h.now()
	expires := now.Add(appliedFor)
	head := h.catalog.Snapshot(w.Head)
	if !changed && head != nil && head.Top == w.Base && (head.ExpiresAt == nil || !head.ExpiresAt.Before(expires)) {
		return head, nil
	}
	s := &catalog.Snapshot{
		Workspace: w.ID, Session: a.session, Description: why, CreatedAt: now, ExpiresAt: &expires,
		Unsaved: true,
	}
	put := func(ch *catalog.Change, w *catalog.Workspace, top string) error {
		h.putSnapshot(ch, s, w, top)
		return nil
	}
	if changed {
		err = h.seal(ctx, w, o, push, false, put)
	} else {
		err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
			next := *h.catalog.Workspace(w.ID)
			ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
			return put(ch, &next, next.Base)
		})
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// once tries to change the target; false if a program has changed something there meanwhile, which only happens unless
// still holds it back.
func (a *application) once(ctx context.Context, still bool) (done bool, err error) {
	h := a.h
	l := h.liveOf(a.to.ID)
	var held bool
	hold := func() {
		if l != nil && !a.to.Paused && !held {
			held = true
			l.hold()
		}
	}
	defer func() {
		if held {
			err = errors.Join(err, h.release(l, nil))
		}
	}()
	if l != nil && l.frozen {
		return false, fmt.Errorf("%w: workspace %s is %s: unmount it first", ErrConflict, a.to.ID, l.readOnly())
	}
	if still {
		hold()
	}
	before, err := a.freeze(ctx, a.to, "before "+a.name+" was applied")
	if err != nil {
		return false, err
	}
	after, err := a.make(ctx, before)
	if after == nil || err != nil {
		return true, err
	}
	hold()
	if changed, err := a.changed(ctx); changed || err != nil {
		return false, errors.Join(err, h.deleteSnapshot(context.WithoutCancel(ctx), after, h.dropped(after, a.session)))
	}
	e := h.event(EventApplied, a.to.ID, a.session, after.ID, a.name)
	if err := h.rollbackLocked(context.WithoutCancel(ctx), a.to.ID, move{to: after, event: e, held: true}); err != nil {
		drop := h.deleteSnapshot(context.WithoutCancel(ctx), after, h.dropped(after, a.session))
		return false, errors.Join(err, drop)
	}
	a.res.Applied, a.res.Before, a.res.After = true, before.ID, after.ID
	return true, nil
}

// dropped is the event of a snapshot that was made in vain.
func (h *Home) dropped(s *catalog.Snapshot, session string) Event {
	return h.event(EventSnapshotDeleted, s.Workspace, session, s.ID, s.Name)
}

// changed reports whether the target has changed since it was frozen.
func (a *application) changed(ctx context.Context) (bool, error) {
	w := a.h.catalog.Workspace(a.to.ID)
	if w == nil {
		return false, fmt.Errorf("%w: the workspace has just been destroyed", ErrNotFound)
	}
	o, _, done, err := a.h.overlayOf(ctx, w, true)
	if err != nil {
		return false, err
	}
	defer done()
	return o.Changed()
}

// undo takes the last apply back.
func (a *application) undo(ctx context.Context) (ApplyResult, error) {
	h := a.h
	unlock, err := h.ops.Lock(ctx, a.to.ID)
	if err != nil {
		return ApplyResult{}, err
	}
	defer unlock()
	w := h.catalog.Workspace(a.to.ID)
	if w == nil {
		return ApplyResult{}, fmt.Errorf("%w: the workspace has just been destroyed", ErrNotFound)
	}
	var last *catalog.Snapshot
	for s := range h.catalog.ListSnapshots(catalog.Query{Workspace: w.ID, Newest: true}) {
		if s.Applied != nil && w.Took(s) && h.catalog.Common(s.Top, w.Base) == s.Top {
			last = s
			break
		}
	}
	if last == nil {
		return ApplyResult{}, fmt.Errorf("%w: nothing was applied to %s that can be taken back", ErrNotFound, w.ID)
	}
	before := h.catalog.Snapshot(last.Applied.Before)
	if before == nil || before.Expired(h.now()) {
		return ApplyResult{}, fmt.Errorf("%w: the state of %s before the last apply is not kept any more",
			ErrNotFound, w.ID)
	}
	changed, err := a.changed(ctx)
	if err != nil {
		return ApplyResult{}, err
	}
	if (changed || w.Base != last.Top) && !a.req.Force {
		return ApplyResult{}, fmt.Errorf("%w: %s was changed since: --force (in Go: Force) takes back what was applied all "+
			"the same, and what was changed since with it", ErrConflict, w.ID)
	}
	e := h.event(EventRolledBack, w.ID, a.session, before.ID, "what was applied was taken back")
	kept, err := h.rollbackKeeping(ctx, w.ID, a.session, move{to: before, event: e})
	if err != nil {
		return ApplyResult{}, err
	}
	res := ApplyResult{
		Workspace: w.ID, Applied: true, Changes: []ApplyChange{}, Conflicts: []ApplyConflict{},
		Before: last.ID, After: before.ID,
	}
	if kept != nil {
		res.Kept = kept.ID
	}
	return res, nil
}
