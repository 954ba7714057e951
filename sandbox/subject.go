package sandbox

import (
	"context"
	"fmt"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// subject is one of the two trees that are compared; one field is set, or none.
type subject struct {
	workspace *catalog.Workspace
	snapshot  *catalog.Snapshot
}

// subjects finds the two trees that a request compares; the second is none if the first is compared with what it came
// from. A name alone means a snapshot of the workspace that the other side names, if it has one of that name.
func (h *Home) subjects(ctx context.Context, r DiffRequest) (a, b subject, err error) {
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return a, b, err
	}
	if r.B != "" && r.Parent {
		return a, b, fmt.Errorf("%w: compare with %s, or with the parent: not both", ErrInvalid, api.Quoted(r.B))
	}
	if a.workspace, a.snapshot, err = h.useObjectOf(ctx, r.Access, h.namedBy(who, r.B), r.A, "diff"); err != nil {
		return a, b, err
	}
	switch {
	case r.B != "":
		b.workspace, b.snapshot, err = h.useObjectOf(ctx, r.Access, h.namedBy(who, r.A), r.B, "diff")
	case a.snapshot != nil && !r.Parent:
		if h.catalog.Workspace(a.snapshot.Workspace) == nil {
			return a, b, fmt.Errorf("%w: snapshot %s is of workspace %s, which is gone: say with what to compare it, or "+
				"with its parent (--parent)", ErrNotFound, fullName(a.snapshot), a.snapshot.Workspace)
		}
		b.workspace, err = h.useWorkspace(ctx, r.Access, a.snapshot.Workspace, "diff")
	}
	return a, b, err
}

// namedBy gives the workspace that a reference names, by itself or before a colon; nil if it names none.
func (h *Home) namedBy(who asker, ref string) *catalog.Workspace {
	if workspace, _, ok := api.SplitRef(ref); ok {
		ref = workspace
	}
	w, err := h.objectWorkspace(who, ref)
	if err != nil {
		return nil // it is said where the reference is looked up
	}
	return w
}
