package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
)

// movedTo tells where a mount is now if it is not where it was made, because a directory above it was renamed; "" if it
// is there, or nowhere.
func (l *live) movedTo(mounts mountTable) string {
	was, now := l.at().path, ""
	for _, e := range mounts {
		if e.device != l.device || e.root != "/" {
			continue
		}
		if e.point == was {
			return ""
		}
		if now == "" {
			now = e.point
		}
	}
	return now
}

// follow has a mount be known by where it is now, and the record say so. What a user has mounted is that user's to move
// back. The caller holds the lock of the workspace.
func (h *Home) follow(ctx context.Context, w *catalog.Workspace, l *live) error {
	how := l.shown.Load()
	if how.at.by != nil || os.Geteuid() != 0 { // only fusermount3 unmounts it, where it was mounted
		return nil
	}
	mounts, err := how.at.view.mounts()
	if err != nil {
		return err
	}
	point := l.movedTo(mounts)
	if point == "" {
		return nil
	}
	next := *how
	next.at.path, next.at.apart = point, true // it has not been looked up as this process would
	next.attached = h.attachmentOf(l.mount, next.at, l.device)
	l.shown.Store(&next)
	h.recordMounted(ctx, w.ID, w.Session, l, nil)
	return nil
}

// copiedWhere refuses to unmount a workspace for somebody who sees a copy of the mount in another mount namespace, which
// would stay there while the mount goes where nobody asked for it.
func (h *Home) copiedWhere(ctx context.Context, l *live) error {
	v, err := h.viewOf(ctx)
	if err != nil || sameNamespace(v, l.at().view) {
		return nil // it is not told where the caller is: the name is all that there is
	}
	mounts, err := v.mounts()
	if err != nil {
		return err
	}
	for _, e := range mounts {
		if l.is(e) && e.apart {
			return fmt.Errorf("%w: what is mounted at %s in this mount namespace is a copy of the mount of workspace %s at %s: "+
				"umount(8) takes the copy away; to unmount the workspace, ask where that is, or with --force", ErrConflict,
				e.point, l.workspace(), l.at().path)
		}
	}
	return nil
}

// keepsNested refuses to move the tree beneath a mount to one that lacks directories on which something is mounted: the
// kernel would take that away, in use or not.
func (h *Home) keepsNested(l *live, s *catalog.Snapshot) error {
	mounts, err := l.at().view.mounts()
	if err != nil {
		return err
	}
	var nested []mountEntry
	var within []string // of each, its path in the tree
	for _, outer := range mounts {
		if outer.device != l.device {
			continue
		}
		for _, e := range mounts {
			if e.point == outer.point || e.device == l.device || !below(e.point, outer.point) {
				continue
			}
			if slices.ContainsFunc(mounts, func(m mountEntry) bool { // it is in that, not in the tree
				return m.point != e.point && m.point != outer.point && below(e.point, m.point) && below(m.point, outer.point)
			}) {
				continue
			}
			rel, err := filepath.Rel(outer.point, e.point)
			if err != nil {
				return err
			}
			nested, within = append(nested, e), append(within, filepath.Join(outer.root, rel)[1:])
		}
	}
	if len(nested) == 0 {
		return nil
	}
	return h.inTree(h.ctx, subject{snapshot: s}, func(t *layers.Tree) error {
		for i, e := range nested {
			f, at, err := lookUp(t, within[i])
			if err == nil && f != nil && at == within[i] {
				continue
			}
			what := e.fstype
			if e.fstype == mountType {
				what = "workspace " + e.source
			}
			return fmt.Errorf("%w: at %s %s is mounted, and snapshot %s has no such directory: unmount it first",
				ErrConflict, e.point, what, fullName(s))
		}
		return nil
	})
}
