package layers

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Seal ends the current upper behind the gate: lets running mutations finish, swaps in the empty upper and work given,
// and opens. The old upper becomes the topmost lower under key. A caller that must find the change again after a crash
// records it before: until the gate closes the old upper is written to, from then on the new one. Nothing inside the
// gate waits for the disk. With an error nothing has changed. The returned Lower is the caller's reference.
func (o *Overlay) Seal(ctx context.Context, key, upperDir, workDir string, inoBase uint64) (*Lower, error) {
	if o.opts.ReadOnly {
		return nil, unix.EROFS
	}
	opts := o.opts
	opts.InoBase = inoBase
	next, err := openUpper(upperDir, workDir, opts, &o.share)
	if err != nil {
		return nil, err
	}
	sealed, err := o.swap(ctx, key, next)
	if err == nil {
		o.carryNameless()
	}
	if err != nil {
		next.release()
		_ = next.layer.lower.Close() // the first error counts
		return nil, err
	}
	return sealed, nil
}

// swap is the part of Seal inside the gate.
func (o *Overlay) swap(ctx context.Context, key string, next *upper) (*Lower, error) {
	if err := next.clean(false); err != nil {
		return nil, err
	}
	var unused []int // descriptors, closed when the gate has opened
	defer func() { closeAll(unused) }()
	defer o.closeGate()()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.tree.Lock()
	defer o.tree.Unlock()
	old := o.upper
	root, err := openat(old.store.root, ".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	sealed := newDirLower(key, &dirStore{root: root, inoBase: old.store.inoBase, wideIno: old.store.wideIno, sealed: true, side: old.store.side})
	fail := func(err error) (*Lower, error) {
		_ = sealed.Close() // the first error counts
		return nil, err
	}
	if err := o.ups.restoreTimes(); err != nil {
		return fail(fmt.Errorf("seal: %w", err))
	}
	if err := next.initRoot(o.root.top); err != nil {
		return fail(fmt.Errorf("seal: prepare the root of the new upper: %w", err))
	}
	if err := o.moveOrphans(old, next); err != nil {
		return fail(fmt.Errorf("seal: keep what is open without a name: %w", err))
	}
	unused = descriptors.takeOut(func(k fdKey) bool { return k.o.layer == old.layer && k.kind == fdWrite })
	was := old.layer.lower
	old.layer.lower = sealed
	_ = was.Close() // O_PATH; a caller of Lowers may still have it
	old.release()
	o.upper = next
	o.countAnew(true)
	o.stack = append([]*layer{next.layer}, o.stack...)
	top := rootPart(next.layer)
	o.nodes.setTop(o.root, top, o.root.parts())
	return sealed.acquire(), nil
}

// Changed reports whether the upper holds anything that differs from the lowers (a cheap test: no = a no-op snapshot).
func (o *Overlay) Changed() (bool, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	if o.upper == nil {
		return false, nil
	}
	if len(o.stack) == 1 {
		return true, nil
	}
	top := o.root.top
	err := top.backend().list(top, func(rawEntry) error { return errFound })
	if errors.Is(err, errFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	below := rootPart(o.stack[1])
	return rootsDiffer(top, below)
}

// rootsDiffer compares what programs can set on two root directories.
func rootsDiffer(a, b *part) (bool, error) {
	x, err := a.backend().stat(a)
	if err != nil {
		return false, err
	}
	y, err := b.backend().stat(b)
	if err != nil {
		return false, err
	}
	if x.Mode != y.Mode || x.UID != y.UID || x.GID != y.GID || x.Mtime != y.Mtime {
		return true, nil
	}
	xs, err := publicXattrs(a)
	if err != nil {
		return false, err
	}
	ys, err := publicXattrs(b)
	if err != nil {
		return false, err
	}
	if len(xs) != len(ys) {
		return true, nil
	}
	for name, v := range xs {
		if w, ok := ys[name]; !ok || w != v {
			return true, nil
		}
	}
	return false, nil
}

// publicXattrs are the attributes that callers see, by raw name.
func publicXattrs(o *part) (map[string]string, error) {
	list, err := o.backend().xattrs(o)
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for _, x := range list {
		if !ownXattr(x.Name) {
			m[x.Name] = string(x.Value)
		}
	}
	return m, nil
}

// Replace swaps a lower for another of the same Key beneath the running overlay: a sealed directory, or that of
// OpenSource, for its image.
func (o *Overlay) Replace(next *Lower) error {
	o.nameLost()
	o.tree.Lock()
	defer o.tree.Unlock()
	for i, l := range o.stack {
		if i == 0 && o.upper != nil || l.lower.key != next.key {
			continue
		}
		old := l.lower
		l.lower = next.acquire()
		descriptors.purge(func(k fdKey) bool { return k.o.layer == l })
		o.groups.forget(old)
		o.nodes.settleRenumbered(l)
		if old.source != nil {
			o.listings.close() // what was removed before it was read is among the names
			o.nodes.settleVersions(l, old.source)
		}
		return old.Close()
	}
	return fmt.Errorf("replace layer %s: not in the stack", next.key)
}

// Lowers gives the overlay's stack with a read-only view of its present upper on top, each with a reference for the
// caller.
func (o *Overlay) Lowers() ([]*Lower, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	var out []*Lower
	for _, l := range o.stack {
		out = append(out, l.lower.acquire())
	}
	return out, nil
}
