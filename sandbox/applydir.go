package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/dirapply"
	"snapfs/sandbox/internal/peer"
	"snapfs/sandbox/internal/threeway"
)

// What is applied to a directory of the host becomes two layers first, over the base: what the directory has where it
// will be changed, and what it is to have there. The directory is then brought from the one to the other by a run of
// package dirapply, of which a journal in the home tells.

// hostTarget finds what a path names as a target: a directory of the host, or the workspace that is mounted there. number
// is what the caller sees there, see ApplyRequest.Inode.
func (h *Home) hostTarget(ctx context.Context, path, number string) (dir, workspace string, err error) {
	mounts, err := readMounts()
	if err != nil {
		return "", "", err
	}
	var at location
	err = asUser(ctx, func() (err error) {
		at, err = h.locate(path, mounts)
		return err
	})
	switch {
	case err != nil:
		return "", "", err
	case at.inside != "":
		return "", at.inside, nil
	case at.missing > 0:
		return "", "", fmt.Errorf("%w: directory %s does not exist", ErrNotFound, path)
	case !at.info.IsDir():
		return "", "", fmt.Errorf("%w: %s is not a directory", ErrInvalid, path)
	case mounts.inside(at.path, h.dir):
		return "", "", fmt.Errorf("%w: %s is inside the home %s", ErrInvalid, path, h.dir)
	case mounts.inside(h.dir, at.path):
		return "", "", fmt.Errorf("%w: %s contains the home %s: nothing can be applied to it", ErrInvalid, path, h.dir)
	}
	for point, ws := range h.mountpoints(mounts) {
		if below(point, at.path) {
			return "", "", fmt.Errorf("%w: workspace %s is mounted inside %s, at %s: unmount it first",
				ErrConflict, ws, path, point)
		}
	}
	if st, ok := at.info.Sys().(*syscall.Stat_t); ok && number != "" && number != fmt.Sprintf("%d:%d", st.Dev, st.Ino) {
		return "", "", fmt.Errorf("%w: %s is another directory for the daemon: run the command where the daemon runs "+
			"(its mount namespace)", ErrUnavailable, path)
	}
	return at.path, "", nil
}

// imported is the layer at the bottom of a stack if it was imported from a directory; nil if not.
func (h *Home) imported(top string) (*catalog.Layer, error) {
	stack, err := h.catalog.Stack(top)
	if err != nil || len(stack) == 0 || stack[len(stack)-1].Imported == "" {
		return nil, err
	}
	return stack[len(stack)-1], nil
}

// directory is an open directory to which something is applied.
type directory struct {
	*application
	root    *dirapply.Root
	threads *peer.Threads
}

// openDirectory opens the target. Close it.
func (a *application) openDirectory(ctx context.Context) (*directory, error) {
	d := &directory{application: a, threads: userThreads(ctx)}
	root, err := dirapply.Open(a.dir, doBy(d.threads))
	if err != nil {
		d.threads.Close()
		return nil, dirError(ctx, err)
	}
	d.root = root
	return d, nil
}

func (d *directory) close() {
	_ = d.root.Close() // nothing is written by it
	d.threads.Close()
}

// dirError puts an error of work in a directory into a class.
func dirError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, dirapply.ErrChanged), errors.Is(err, dirapply.ErrBusy), errors.Is(err, dirapply.ErrInterrupted):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return classify(userError(peer.From(ctx), err))
}

// applyToDirectory is Apply, and its undo, with a directory as the target.
func (a *application) applyToDirectory(ctx context.Context) (ApplyResult, error) {
	h := a.h
	unlock, err := h.ops.Lock(ctx, "directory "+a.dir) // no name of a workspace
	if err != nil {
		return ApplyResult{}, err
	}
	defer unlock()
	leave, err := h.working.diffs.Enter(ctx, a.session, nil)
	if err != nil {
		return ApplyResult{}, err
	}
	defer leave()
	if err := h.resumeIn(ctx, a.dir, a.req.DryRun); err != nil {
		return ApplyResult{}, err
	}
	d, err := a.openDirectory(ctx)
	if err != nil {
		return ApplyResult{}, err
	}
	defer d.close()
	if a.req.Undo {
		err = d.takeBack(ctx)
	} else {
		err = d.bring(ctx)
	}
	return a.res, classify(err)
}

// bring applies to the directory.
func (d *directory) bring(ctx context.Context) error {
	base, err := d.baseOf(d.from.top())
	if err != nil {
		return err
	}
	if !d.req.DryRun {
		if err := errors.Join(d.h.withinLimits(d.session), d.h.roomInHome(ctx)); err != nil {
			return err
		}
		frozen, err := d.freezeFrom(ctx)
		if err != nil {
			return err
		}
		d.from = subject{snapshot: frozen}
	}
	m, err := d.compareAll(ctx, base, d.from, resolutions[d.req.Conflicts])
	if err != nil {
		return err
	}
	defer m.close()
	d.tell(m.Plan)
	if d.req.DryRun || len(m.Conflicts) > 0 || m.Empty() || d.refused() {
		return nil
	}
	return d.carryOut(ctx, m, nil)
}

// baseOf is the topmost layer of what the directory and a stack stem from: what was applied to the directory last, or
// what was imported.
func (d *directory) baseOf(top string) (string, error) {
	if d.base != nil {
		return d.base.Top, nil
	}
	l, err := d.h.imported(top)
	if err != nil {
		return "", err
	}
	if l == nil {
		return "", fmt.Errorf("%w: %s was not made from a directory: name a snapshot that it has in common with %s (--base; "+
			"in Go: Base)", ErrInvalid, d.name, d.dir)
	}
	base := l.ID
	for s := range d.h.catalog.ListSnapshots(catalog.Query{}) {
		if s.Applied == nil || s.Applied.Directory != d.dir || s.Applied.Undone || s.Applied.FromTop == "" {
			continue
		}
		from := s.Applied.FromTop
		if d.h.catalog.Common(from, top) == from && d.h.catalog.Common(base, from) == base {
			base = from
		}
	}
	return base, nil
}

// dirPlan is a plan for a directory, with what it was made of.
type dirPlan struct {
	applyPlan
	base    string // topmost layer
	changes []layers.Change
	old     threeway.Tree
	from    []layers.Change // that lead from the base to what is applied
}

// compareAll compares the base with what is applied, and with the directory, and plans.
func (d *directory) compareAll(
	ctx context.Context, base string, from subject, resolve threeway.Resolve,
) (_ *dirPlan, err error) {
	m := &dirPlan{base: base}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	theirs, err := m.open(ctx, d.h, subject{snapshot: &catalog.Snapshot{Top: base}}, from, &m.from)
	if err != nil {
		return nil, err
	}
	m.old = layerTree{theirs.Old()}
	if m.changes, err = d.root.Scan(ctx, m.old); err != nil {
		return nil, dirError(ctx, err)
	}
	in := threeway.Input{
		Base: m.old, From: layerTree{theirs.New()}, Target: d.root.Tree(), FromChanges: m.from, TargetChanges: m.changes,
		Resolve: resolve, OurName: d.dir, TheirName: d.name,
	}
	if m.Plan, err = threeway.Make(ctx, in); err != nil {
		return m, dirError(ctx, err)
	}
	parted := base
	if l, err := d.h.imported(d.from.top()); err == nil && l != nil && d.base == nil {
		parted = l.ID
	}
	return m, dirError(ctx, d.findStale(ctx, in, base, parted))
}

// open opens two trees and compares them.
func (m *dirPlan) open(ctx context.Context, h *Home, old, now subject, changes *[]layers.Change) (*layers.Comparison, error) {
	stop := h.catalog.Common(old.top(), now.top())
	var trees [2]*tree
	for i, s := range []subject{old, now} {
		t, err := h.openTree(ctx, s.workspace, s.snapshot, stop)
		if err != nil {
			return nil, err
		}
		m.free = append(m.free, t.close)
		trees[i] = t
	}
	return m.compare(ctx, trees[0], trees[1], changes)
}

// kept gives the part of a plan's target that is kept before the plan is carried out: the changes of the directory that
// concern what is touched, and the directories whose times change, innermost first.
func (m *dirPlan) kept() (changes []layers.Change, dirs []string) {
	moved := map[string]string{}
	for _, p := range m.Puts {
		if p.New == nil {
			moved[p.Path] = p.Old
		}
	}
	before := func(path string) string { // where something was
		for at := path; at != ""; at = parentOf(at) {
			if old, ok := moved[at]; ok {
				return old + strings.TrimPrefix(path, at)
			}
		}
		return path
	}
	need, whole, parents := map[string]bool{}, map[string]bool{}, map[string]bool{"": true}
	touch := func(path string) {
		for at := path; !need[at]; at = parentOf(at) {
			need[at] = true
		}
		for at := parentOf(path); !parents[at]; at = parentOf(at) {
			parents[at] = true
		}
	}
	for _, t := range m.Takes {
		touch(t.Path)
		whole[t.Path] = !t.Moved
	}
	for _, p := range m.Puts {
		touch(before(p.Path))
	}
	for _, s := range m.Sets {
		touch(before(s.Path))
	}
	for _, t := range m.Dirs {
		touch(before(t.Path))
		parents[before(t.Path)] = true
	}
	for _, c := range m.changes {
		if c.Kind != layers.Added && c.Kind != layers.Modified && need[c.Path] {
			whole[c.Path] = true
		}
	}
	inside := func(path string) bool {
		for at := path; at != ""; at = parentOf(at) {
			if whole[at] {
				return true
			}
		}
		return false
	}
	for _, c := range m.changes {
		if need[c.Path] || inside(c.Path) {
			changes = append(changes, c)
		}
	}
	for path := range parents {
		dirs = append(dirs, path)
	}
	slices.SortFunc(dirs, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return changes, dirs
}

// parentOf is the path of the directory that something is in; "" of the root.
func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// keep makes a snapshot of what the directory has where it will be changed.
func (d *directory) keep(ctx context.Context, m *dirPlan) (*catalog.Snapshot, error) {
	changes, dirs := m.kept()
	host := d.root.Tree()
	p, err := threeway.Make(ctx, threeway.Input{Base: m.old, From: host, Target: m.old, FromChanges: changes})
	if err != nil {
		return nil, dirError(ctx, err)
	}
	if len(p.Conflicts) > 0 {
		return nil, fmt.Errorf("%q of %s cannot be kept: %s", p.Conflicts[0].Path, d.dir, p.Conflicts[0].What)
	}
	p.Dirs = slices.DeleteFunc(p.Dirs, func(t threeway.Dir) bool { return slices.Contains(dirs, t.Path) })
	for _, path := range dirs {
		f, err := host.Lstat(path)
		if err != nil {
			return nil, dirError(ctx, err)
		}
		if f != nil && f.Stat().Mode&unix.S_IFMT == unix.S_IFDIR {
			p.Dirs = append(p.Dirs, threeway.Dir{Path: path, As: f})
		}
	}
	s := &catalog.Snapshot{
		Workspace: d.workspaceName(), Description: d.dir + " before " + d.name + " was applied", Foreign: new(bool), Unsaved: true,
	}
	*s.Foreign = peer.From(ctx) != nil || d.h.foreignSnapshot(d.from.snapshot)
	return s, d.lay(ctx, s, m.base, p)
}

// workspaceName is the workspace to which snapshots of the directory belong.
func (d *directory) workspaceName() string { return d.from.snapshot.Workspace }

// carryOut changes the directory. undone is the apply that is taken back by that, or nil.
func (d *directory) carryOut(ctx context.Context, m *dirPlan, undone *catalog.Snapshot) (err error) {
	h := d.h
	before, err := d.keep(ctx, m)
	if err != nil {
		if before != nil {
			h.unpin(before.ID)
		}
		return err
	}
	drop := []*catalog.Snapshot{before}
	defer func() {
		if err == nil && d.res.Applied {
			return
		}
		for _, s := range drop {
			h.unpin(s.ID)
		}
		for _, s := range drop {
			err = errors.Join(err, h.deleteSnapshot(context.WithoutCancel(ctx), s, h.dropped(s, d.session)))
		}
	}()
	after := &catalog.Snapshot{
		Workspace: d.workspaceName(), Description: d.name + " applied to " + d.dir, Parent: before.ID, Foreign: before.Foreign,
		Unsaved: true,
	}
	if err := d.lay(ctx, after, before.Top, m.Plan); err != nil {
		h.unpin(after.ID)
		return err
	}
	drop = append(drop, after)
	j := &applyJournal{
		Directory: d.dir, By: peer.From(ctx), Session: d.session, Name: d.name, Before: before.ID, After: after.ID,
	}
	if undone != nil {
		j.Undone = undone.ID
	} else {
		j.FromTop = d.from.snapshot.Top
	}
	changes, err := j.open(ctx, h)
	if err != nil {
		return err
	}
	defer j.close()
	if j.dirID, err = rootID(ctx, d.root, d.dir); err != nil {
		return err
	}
	var obstacles []dirapply.Obstacle
	j.Steps, obstacles, err = d.root.Steps(ctx, changes, j.old, j.now)
	if err != nil {
		return dirError(ctx, err)
	}
	if len(obstacles) > 0 {
		for _, o := range obstacles {
			d.res.Conflicts = append(d.res.Conflicts, ApplyConflict{Kind: "refused", Path: o.Path, RawPath: api.RawPath(o.Path), Detail: o.Why})
		}
		return nil
	}
	unlock, err := h.lockJournal(ctx, j.After)
	if err != nil {
		return err
	}
	defer unlock()
	if err := j.write(h); err != nil {
		if gone := j.remove(h); gone != nil { // it may be there all the same
			drop = nil
			err = errors.Join(err, gone)
		}
		return err
	}
	h.points.At("apply to a directory begun")
	got, err := d.root.Run(ctx, j.run(h, false))
	if err != nil {
		return j.giveUp(ctx, d.root, h, err, &drop)
	}
	if err := j.finish(context.WithoutCancel(ctx), h, len(got.Skips) > 0); err != nil {
		drop = nil
		return err
	}
	d.res.Applied, d.res.Before, d.res.After = true, before.ID, after.ID
	for _, s := range got.Skips {
		d.res.Skips = append(d.res.Skips, Skip{Path: s.Path, RawPath: api.RawPath(s.Path), What: s.What, Error: s.Err.Error()})
	}
	return nil
}

// takeBack takes the last apply to the directory back.
func (d *directory) takeBack(ctx context.Context) error {
	h := d.h
	who, err := newAsker(ctx, d.req.Access)
	if err != nil {
		return err
	}
	var last *catalog.Snapshot
	for s := range h.catalog.ListSnapshots(catalog.Query{Newest: true}) {
		if s.Applied != nil && s.Applied.Directory == d.dir && !s.Applied.Undone && who.may(s.Session) {
			last = s
			break
		}
	}
	if last == nil {
		return fmt.Errorf("%w: nothing was applied to %s that can be taken back", ErrNotFound, d.dir)
	}
	before := h.catalog.Snapshot(last.Applied.Before)
	if before == nil || before.Expired(h.now()) {
		return fmt.Errorf("%w: the state of %s before the last apply is not kept any more", ErrNotFound, d.dir)
	}
	d.from, d.name = subject{snapshot: before}, "the state before"
	m, err := d.compareAll(ctx, last.Top, d.from, threeway.Theirs)
	if err != nil {
		return err
	}
	defer m.close()
	changed, err := d.changedSince(ctx, m, last.Applied.Partly)
	if err != nil {
		return err
	}
	if len(changed) > 0 && !d.req.Force {
		return fmt.Errorf("%w: changed in %s since: %s: --force (in Go: Force) takes back what was applied all the same; what "+
			"was changed there since is kept in a snapshot", ErrConflict, d.dir, few(changed))
	}
	d.tell(m.Plan)
	d.res.From = ""
	if err := d.remaining(ctx, m); err != nil {
		return err
	}
	if m.Empty() {
		return h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
			return undoneBy(ch, h.catalog.Snapshot(last.ID))
		})
	}
	err = d.carryOut(ctx, m, last)
	if err == nil && len(changed) > 0 {
		d.res.Kept = d.res.Before
	}
	return err
}

// remaining lists what was added by the apply that is taken back, and stays.
func (d *directory) remaining(ctx context.Context, m *dirPlan) error {
	goes := map[string]bool{}
	for _, t := range m.Takes {
		goes[t.Path] = true
	}
	host := d.root.Tree()
	for _, c := range m.from {
		if c.Kind != layers.Deleted || goes[c.Path] {
			continue
		}
		f, err := host.Lstat(c.Path)
		if err != nil {
			return dirError(ctx, err)
		}
		if f != nil {
			d.res.Left = append(d.res.Left, ApplyLeft{Path: c.Path, RawPath: api.RawPath(c.Path), Detail: "something else is in it"})
		}
	}
	return nil
}

// few names some of many paths.
func few(paths []string) string {
	const most = 5
	var b strings.Builder
	for i, path := range paths[:min(len(paths), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(api.Quoted(path))
	}
	if len(paths) > most {
		fmt.Fprintf(&b, " and %d more", len(paths)-most)
	}
	return b.String()
}

// changedSince lists what is about to be taken back and was changed meanwhile. Partly says that the directory did not take
// all owners and attributes.
func (d *directory) changedSince(ctx context.Context, m *dirPlan, partly bool) ([]string, error) {
	touched := map[string]bool{}
	for _, c := range m.from {
		touched[c.Path] = true
		if c.OldPath != "" {
			touched[c.OldPath] = true
		}
	}
	host := d.root.Tree()
	var changed []string
	for _, c := range m.changes {
		if !touched[c.Path] {
			continue
		}
		if partly && c.Kind == layers.Modified {
			old, err := m.old.Lstat(c.Path)
			if err != nil {
				return nil, err
			}
			now, err := host.Lstat(c.Path)
			if err != nil {
				return nil, dirError(ctx, err)
			}
			if same, err := dirapply.SameContents(ctx, old, now); same || err != nil {
				if err != nil {
					return nil, dirError(ctx, err)
				}
				continue
			}
		}
		changed = append(changed, c.Path)
	}
	return changed, nil
}
