package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"snapfs/sandbox/internal/catalog"
)

// keepDestroyed takes a snapshot without a name of a workspace that is about to be destroyed and has no connection, if no
// snapshot has its state; nil if one has, or if it is as it was made. The caller holds the workspace's lock.
func (h *Home) keepDestroyed(
	ctx context.Context, w *catalog.Workspace, keepFor time.Duration,
) (*catalog.Snapshot, error) {
	if w.View || !h.uppers.Exists(w.Upper) {
		return nil, nil
	}
	now := h.now()
	expires := now.Add(keepFor)
	unsaved, err := h.unsaved(ctx, w, now.Add(keepFor/2)) // what lasts about as long will do
	if err != nil || !unsaved {
		return nil, err
	}
	if err := h.withinLimits(w.Session); err != nil {
		return nil, err
	}
	s := &catalog.Snapshot{
		Workspace: w.ID, Session: w.Session, Description: "unsaved when " + w.ID + " was destroyed",
		CreatedAt: now, ExpiresAt: &expires, Unsaved: true,
	}
	err = h.freeze(ctx, w.ID, false, func(ch *catalog.Change, w *catalog.Workspace, top string) error {
		h.putSnapshot(ch, s, w, top)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// unsaved reports whether a workspace without a connection has something that goes with it. What it was imported from
// does not count, nor a root directory that is empty.
func (h *Home) unsaved(ctx context.Context, w *catalog.Workspace, until time.Time) (bool, error) {
	if w.Base == "" {
		empty, err := isEmptyDir(h.uppers.Path(w.Upper))
		return !empty, err
	}
	o, _, done, err := h.overlayOf(ctx, w, false)
	if err != nil {
		return false, err
	}
	changed, err := h.changedIn(ctx, o, w.ID)
	done()
	if err != nil {
		return false, err
	}
	if changed || h.lasting(w.Base, until) {
		return changed, nil
	}
	return w.Head != "" || !filepath.IsAbs(w.Source), nil // else it is what was imported
}

// lasting reports whether a snapshot has exactly the tree of a layer, and does not expire before a time.
func (h *Home) lasting(top string, until time.Time) bool {
	for s := range h.catalog.ListSnapshots(catalog.Query{}) {
		if s.Top == top && (s.ExpiresAt == nil || !s.ExpiresAt.Before(until)) {
			return true
		}
	}
	return false
}

// isEmptyDir reports whether a directory of the home has no entries.
func isEmptyDir(path string) (bool, error) {
	d, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = d.Close() }() // nothing was written
	_, err = d.Readdirnames(1)
	if errors.Is(err, io.EOF) {
		return true, nil
	}
	return false, err
}
