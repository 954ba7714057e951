package sandbox

import (
	"context"
	"fmt"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

var _ api.Positions = (*Home)(nil)

// Position gives where an agent of the session works.
func (h *Home) Position(ctx context.Context, r api.PositionRequest) (api.Position, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return api.Position{}, err
	}
	defer end()
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return api.Position{}, err
	}
	if err := api.ValidPositionName(r.Name); err != nil {
		return api.Position{}, err
	}
	p, err := h.catalog.Position(ctx, who.session, r.Name)
	if err != nil {
		return api.Position{}, err
	}
	if p == nil {
		return api.Position{}, fmt.Errorf("%w: position %s", ErrNotFound, api.Quoted(r.Name))
	}
	return p.Position, nil
}

// SetPosition notes where an agent of the session works. It survives a loss of power.
func (h *Home) SetPosition(ctx context.Context, r api.SetPositionRequest) (api.Position, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return api.Position{}, err
	}
	defer end()
	if err := api.ValidPositionName(r.Name); err != nil {
		return api.Position{}, err
	}
	w, err := h.useWorkspace(ctx, r.Access, r.Workspace, "position")
	if err != nil {
		return api.Position{}, err
	}
	session, err := r.SessionID()
	if err != nil {
		return api.Position{}, err
	}
	p := api.Position{Name: r.Name, Workspace: w.ID, UpdatedAt: h.catalog.Now().UTC()}
	return p, h.catalog.SetPosition(ctx, &catalog.Position{Session: session, Position: p})
}
