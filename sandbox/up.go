package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// Up gives the workspace of a name, whatever has happened to it: the same if it is there; if its upper is lost, or if
// it was destroyed and no source is given, one of the same name in the state of its newest snapshot that the session
// may use; else a fresh one. A source other than that from which a workspace that is there was made is ErrConflict.
func (h *Home) Up(ctx context.Context, r UpRequest) (UpResult, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return UpResult{}, err
	}
	defer end()
	if err := ValidWorkspaceName(r.Name); err != nil {
		return UpResult{}, err
	}
	session, err := r.SessionID()
	if err == nil {
		err = errors.Join(r.Quota.Valid(), validEngine(r.Engine))
	}
	if err != nil {
		return UpResult{}, err
	}
	if h.catalog.Workspace(r.Name) != nil {
		return h.upExisting(ctx, r, session)
	}
	how := Fresh
	if r.Source == "" {
		if s := h.newestOf(r.Name, session, r.Access); s != nil {
			r.Source, how = s.ID, Restored
		}
	}
	w, err := h.Create(ctx, r.CreateRequest)
	return UpResult{Workspace: w, How: how}, err
}

// upExisting gives a workspace that has a record.
func (h *Home) upExisting(ctx context.Context, r UpRequest, session string) (UpResult, error) {
	w, err := h.useChangeable(ctx, r.Access, r.Name, "up")
	if err != nil {
		return UpResult{}, err
	}
	unlock, err := h.ops.Lock(ctx, w.ID)
	if err != nil {
		return UpResult{}, err
	}
	defer unlock()
	if w = h.catalog.Workspace(r.Name); w == nil {
		return UpResult{}, fmt.Errorf("%w: workspace %s has just been destroyed", ErrConflict, r.Name)
	}
	if err := h.sameSource(ctx, r, w); err != nil {
		return UpResult{}, err
	}
	limits := !r.Quota.None() && (w.Quota == nil || *w.Quota != r.Quota)
	if limits {
		if err := mayLimit(ctx); err != nil {
			return UpResult{}, err
		}
	}
	how := Same
	if h.liveOf(w.ID) == nil && !h.uppers.Exists(w.Upper) {
		s := h.catalog.Snapshot(w.Head)
		if s == nil {
			s = h.newestOf(w.ID, session, r.Access)
		}
		if s == nil {
			return UpResult{}, fmt.Errorf("%w: workspace %s: its upper %s is missing, and it has no snapshot: "+
				"destroy it", ErrCorrupt, w.ID, h.uppers.Path(w.Upper))
		}
		e := h.event(EventRolledBack, w.ID, session, s.ID, "its upper was lost")
		if err := h.rollbackLocked(ctx, w.ID, move{to: s, event: e, held: w.Paused}); err != nil {
			return UpResult{}, err
		}
		how = Restored
	}
	if r.Engine != "" {
		if err := h.setEngine(ctx, h.catalog.Workspace(w.ID), r.Engine); err != nil {
			return UpResult{}, err
		}
	}
	if limits {
		if err := h.setQuotaLocked(ctx, w, session, r.Quota); err != nil {
			return UpResult{}, err
		}
	}
	d, err := h.describe(h.catalog.Workspace(w.ID))
	return UpResult{Workspace: d, How: how}, err
}

// sameSource refuses a source for a workspace that is there and was made from something else.
func (h *Home) sameSource(ctx context.Context, r UpRequest, w *catalog.Workspace) error {
	if r.Source == "" {
		return nil
	}
	label := r.Source
	if kind, rest, ok := api.SplitImage(label); ok && strings.HasPrefix(rest, "/") {
		src, err := h.archiveSource(ctx, kind, rest, r.Platform)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if err == nil {
			label = src.label
		}
	} else if filepath.IsAbs(label) {
		label = h.realPath(ctx, label)
	} else {
		s, err := h.useSnapshot(ctx, r.Access, r.Source, "up")
		if err != nil {
			return err
		}
		label = snapshotSource(s)
	}
	if label == w.Source {
		return nil
	}
	from := "nothing"
	if w.Source != "" {
		from = w.Source
	}
	return fmt.Errorf("%w: workspace %s is there, and was made from %s, not from %s: leave the source out, choose "+
		"another name, or destroy it first", ErrConflict, w.ID, from, label)
}

// realPath is a path without symbolic links, or as it is if it does not lead anywhere.
func (h *Home) realPath(ctx context.Context, path string) string {
	real, err := patiently(ctx, h, path, func() (string, error) {
		mounts, err := readMounts()
		if err != nil {
			return "", err
		}
		at, err := h.locate(path, mounts)
		return at.path, err
	})
	if err != nil {
		return filepath.Clean(path)
	}
	return real
}

// newestOf finds the newest snapshot of a workspace that a session may restore, or nil.
func (h *Home) newestOf(workspace, session string, a Access) *catalog.Snapshot {
	return h.catalog.NewestSnapshot(workspace, func(s *catalog.Snapshot) bool {
		return a.Allows(s.Session, session) && h.restorable(s) == nil
	})
}
