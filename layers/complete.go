package layers

import (
	"context"
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"
)

// Complete copies up what is missing of all partial files of the upper, so that a kernel overlayfs can have it. A
// caller that gives an upper to the kernel calls it first, with nothing mounted that could write, and closes the
// overlay. Layers that were sealed before may hold partial files still: the kernel gets the images of those, or a mount
// that shows them merged. A cancelled call leaves a good upper, of which some files are complete.
func (o *Overlay) Complete(ctx context.Context) error {
	if o.opts.ReadOnly {
		return unix.EROFS
	}
	return o.completeDir(ctx, RootNode, "")
}

// completeDir is Complete for what is in a directory.
func (o *Overlay) completeDir(ctx context.Context, dir NodeID, at string) error {
	names, err := o.upperNames(dir)
	if err != nil {
		return fmt.Errorf("list %q: %w", at, err)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, err := o.Lookup(dir, name)
		if errors.Is(err, unix.ENOENT) {
			continue // a whiteout
		}
		if err == nil {
			full := path.Join(at, name)
			if isDir(e.Attr.Mode) {
				err = o.completeDir(ctx, e.Node, full)
			} else if err = o.completeFile(e.Node); err != nil {
				err = fmt.Errorf("complete %q: %w", full, err)
			}
			o.Forget(e.Node, 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// upperNames lists what the upper has in a directory.
func (o *Overlay) upperNames(dir NodeID) ([]string, error) {
	o.tree.RLock()
	defer o.tree.RUnlock()
	n, err := o.dirNode(dir)
	if err != nil || !o.inUpper(n) {
		return nil, err
	}
	var names []string
	err = n.top.backend().list(n.top, func(e rawEntry) error {
		if !e.whiteout {
			names = append(names, e.name)
		}
		return nil
	})
	return names, err
}

// completeFile completes a file if it is partial.
func (o *Overlay) completeFile(id NodeID) error {
	return o.withCopyUp(func() error {
		o.tree.RLock()
		defer o.tree.RUnlock()
		n, err := o.nodes.get(id)
		if err != nil || !isReg(n.typ) || len(n.below) == 0 || !o.inUpper(n) {
			return err
		}
		m, err := o.blocksOf(n.top, n)
		if err != nil || m == nil {
			return err
		}
		return o.needUp(n, true)
	})
}
