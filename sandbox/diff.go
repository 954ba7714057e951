package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// tree is an open stack to be read: of a snapshot, or of a workspace with its upper on top.
type tree struct {
	lowers []*layers.Lower
	close  func()
}

// openTree opens the tree of a workspace or of a snapshot, whichever is not nil; stop is as for openLayers. A mount that
// is read may be unmounted meanwhile: else two calls that open the same two trees could wait for each other. What is read
// stays.
func (h *Home) openTree(ctx context.Context, w *catalog.Workspace, s *catalog.Snapshot, stop string) (*tree, error) {
	if s != nil {
		return h.openLayers(ctx, s.Top, stop)
	}
	unlock, err := h.ops.Lock(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if w = h.catalog.Workspace(w.ID); w == nil {
		return nil, fmt.Errorf("%w: the workspace has just been destroyed", ErrNotFound)
	}
	if h.liveOf(w.ID).kernel() != nil {
		return h.openKernelTree(ctx, w)
	}
	o, _, done, err := h.overlayOf(ctx, w, true)
	if err != nil {
		return nil, err
	}
	// The workspace goes on, and may be rolled back, sealed or stored: the directories that are read must stay.
	free := []func(){h.uppers.Hold(w.Upper)}
	l := h.liveOf(w.ID)
	if l != nil {
		free = append(free, l.retain())
	}
	lowers, err := o.Lowers()
	if l != nil && o == l.overlay {
		done()
	} else {
		free = append(free, done)
	}
	done = func() {
		for _, f := range free {
			f()
		}
	}
	if err != nil {
		done()
		return nil, classify(fmt.Errorf("reading workspace %s: %w", w.ID, err))
	}
	return &tree{lowers: lowers, close: func() {
		for _, l := range lowers {
			if err := l.Close(); err != nil {
				h.log.Warn("closing a layer", "layer", l.Key(), "error", err)
			}
		}
		done()
	}}, nil
}

// openKernelTree is openTree for a workspace that the kernel's overlayfs shows: with what is in its upper now. The caller
// holds its lock.
func (h *Home) openKernelTree(ctx context.Context, w *catalog.Workspace) (*tree, error) {
	stack, err := h.cache.Open(ctx, w.Base)
	if err != nil {
		return nil, err
	}
	upper, err := h.openUpper(w)
	if err != nil {
		stack.Release()
		return nil, err
	}
	release := h.uppers.Hold(w.Upper)
	return &tree{lowers: append([]*layers.Lower{upper}, stack.Lowers()...), close: func() {
		_ = upper.Close() // nothing was written
		stack.Release()
		release()
	}}, nil
}

// openLayers opens the tree of a stack; that of "" is a root directory without entries. No tier reaches across stop, so
// that two stacks which have that layer share all lowers from there down.
func (h *Home) openLayers(ctx context.Context, top, stop string) (*tree, error) {
	if top == "" {
		return h.openNothing()
	}
	s, err := h.cache.OpenOver(ctx, top, stop)
	if err != nil {
		return nil, err
	}
	return &tree{lowers: s.Lowers(), close: s.Release}, nil
}

// openNothing opens the tree of a stack without layers.
func (h *Home) openNothing() (*tree, error) {
	low, err := layers.OpenSealed("", filepath.Join(h.dir, emptyDir), 0)
	if err != nil {
		return nil, classify(fmt.Errorf("opening the empty tree: %w", err))
	}
	return &tree{lowers: []*layers.Lower{low}, close: func() {
		if err := low.Close(); err != nil {
			h.log.Warn("closing the empty tree", "error", err)
		}
	}}, nil
}

// Diff calls fn for every change that leads from A to B; with an empty B, from a snapshot to the present state of its
// workspace, or to it from its parent, and to a workspace from its newest layer. With Stat or Patch a renamed directory is followed by a rename of every file in it.
// A patch that cannot be made is refused before fn is called, ErrInvalid.
// An error of fn ends it. fn must not work on a workspace that is compared.
func (h *Home) Diff(ctx context.Context, r DiffRequest, fn func(Change) error) error {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	session, err := r.SessionID()
	if err != nil {
		return err
	}
	if _, err := filterOf(r.Part); err != nil {
		return err
	}
	a, b, err := h.subjects(ctx, r)
	if err != nil {
		return err
	}
	leave, err := h.working.diffs.Enter(ctx, session, r.Progress)
	if err != nil {
		return err
	}
	defer leave()
	for _, s := range []*subject{&a, &b} {
		if s.snapshot == nil {
			continue
		}
		if s.snapshot, err = h.still(s.snapshot); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		told, err := h.diffOnce(ctx, r, a, b, fn)
		// What is being written may lose files, or by a rollback its whole upper, between one look and the next.
		moving := a.workspace != nil || b.workspace != nil
		if told || !moving || try == diffAttempts || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESTALE) {
			return err
		}
	}
}

// diffAttempts is how often a comparison with a workspace is tried that is written to meanwhile.
const diffAttempts = 5

// diffOnce compares a with b, or with what a came from; told says that fn was called.
func (h *Home) diffOnce(
	ctx context.Context, r DiffRequest, a, b subject, fn func(Change) error,
) (told bool, err error) {
	from, to, done, err := h.openSides(ctx, a, b)
	if err != nil {
		return false, err
	}
	defer done()
	c, err := layers.Compare(from.lowers, to.lowers)
	if err != nil {
		return false, classify(err)
	}
	defer c.Close()
	emit := func(c Change) error {
		told = true
		return fn(publicChange(c))
	}
	if r.Stat || r.Patch || r.Contents != nil || !r.All() {
		var all []layers.Change
		for change, err := range c.Changes(ctx) {
			if err != nil {
				return false, classify(err)
			}
			all = append(all, change)
		}
		d, err := newFileDiff(ctx, c, r)
		if err == nil {
			err = d.run(all, emit)
		}
		return told, classify(err)
	}
	for change, err := range c.Changes(ctx) {
		if err == nil {
			err = emit(changeOf(change))
		}
		if err != nil {
			return told, classify(err)
		}
	}
	return told, ctx.Err()
}

// openSides opens the two trees of a comparison: of a and b, or with an empty b, of what a came from and a.
func (h *Home) openSides(ctx context.Context, a, b subject) (from, to *tree, done func(), err error) {
	if b != (subject{}) {
		stop := h.catalog.Common(a.top(), b.top())
		if from, err = h.openTree(ctx, a.workspace, a.snapshot, stop); err != nil {
			return nil, nil, nil, err
		}
		if to, err = h.openTree(ctx, b.workspace, b.snapshot, stop); err != nil {
			from.close()
			return nil, nil, nil, err
		}
		return from, to, func() { to.close(); from.close() }, nil
	}
	base := ""
	if a.snapshot != nil {
		base = h.comparedWith(a.snapshot)
	}
	stop := h.catalog.Common(a.top(), base)
	if to, err = h.openTree(ctx, a.workspace, a.snapshot, stop); err != nil {
		return nil, nil, nil, err
	}
	if a.workspace != nil {
		if now := h.catalog.Workspace(a.workspace.ID); now != nil {
			base = h.newestState(now)
		}
	}
	if from = to.from(base); from != nil {
		return from, to, to.close, nil
	}
	if from, err = h.openLayers(ctx, base, stop); err != nil {
		to.close()
		return nil, nil, nil, err
	}
	return from, to, func() { from.close(); to.close() }, nil
}

// top is the topmost layer of what is compared.
func (s subject) top() string {
	if s.snapshot != nil {
		return s.snapshot.Top
	}
	return s.workspace.Base
}

// from is the tree of a layer that is one of t's lowers; nil if it is none. It is open as long as t.
func (t *tree) from(layer string) *tree {
	i := slices.IndexFunc(t.lowers, func(l *layers.Lower) bool { return l.Key() == layer })
	if i < 0 || layer == "" {
		return nil
	}
	return &tree{lowers: t.lowers[i:]}
}

// changeOf is a change of the layers in the words of the API.
func changeOf(c layers.Change) Change {
	return Change{
		Kind: string(rune(c.Kind)), Path: c.Path, OldPath: c.OldPath,
		Mode: c.Mode, Size: c.Size, OldMode: c.OldMode, OldSize: c.OldSize,
	}
}

// publicChange is a change as JSON can hold it: the encoder spells raw paths in base64, and spoils the bytes of the
// others that are no UTF-8.
func publicChange(c Change) Change {
	c.RawPath, c.RawOldPath = api.RawPath(c.Path), api.RawPath(c.OldPath)
	return c
}
