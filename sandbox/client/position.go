package client

import (
	"context"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/wire"
)

var _ api.Positions = (*Client)(nil)

// Position implements api.Positions.
func (c *Client) Position(ctx context.Context, r api.PositionRequest) (api.Position, error) {
	return call[api.Position](ctx, c, wire.CallPosition, r, sink{})
}

// SetPosition implements api.Positions.
func (c *Client) SetPosition(ctx context.Context, r api.SetPositionRequest) (api.Position, error) {
	return callAt[api.Position](ctx, c, wire.CallSetPosition, &r, r.Access, sink{}, &r.Workspace)
}
