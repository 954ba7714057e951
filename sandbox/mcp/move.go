package mcp

import (
	"cmp"
	"context"
	"slices"

	"snapfs/sandbox/api"
)

type moveInput struct {
	Snapshot string `json:"snapshot" jsonschema:"name or id of the snapshot, as workspace_list_snapshots lists them"`
	Name     string `json:"name,omitempty" jsonschema:"a name for the new workspace: lower-case letters, digits and inner hyphens; one is made up if it is not given"`
}

type moveOutput struct {
	At
	Previous string   `json:"previous" jsonschema:"the workspace that was at hand before; it is as it was"`
	Snapshot Snapshot `json:"snapshot" jsonschema:"the state that the new workspace has"`
}

func (o moveOutput) text() string {
	return "You are now in workspace " + o.Workspace + ", which has the state of snapshot " + o.Snapshot.called() +
		". All workspace_ tools work on it from now on. Workspace " + o.Previous + ", where you were, is as it was."
}

func (b *builder) addMoves() {
	add(b, tool{
		"workspace_restore", "Go back to a snapshot",
		"Makes a new workspace with the state of a snapshot, and works on that from then on. The workspace that was at hand " +
			"stays as it is. Use it when a change has gone wrong.",
		api.ScopeWorkspaces,
		effect{},
	}, func(ctx context.Context, c *call, in moveInput) (moveOutput, error) {
		return move(ctx, c, in, c.service.Restore)
	})
	add(b, tool{
		"workspace_branch", "Branch from a snapshot",
		"Makes a new workspace from a snapshot to try something, and works on that from then on. The workspace that was at " +
			"hand stays as it is. Use it to try several ways from one state.",
		api.ScopeWorkspaces,
		effect{},
	}, func(ctx context.Context, c *call, in moveInput) (moveOutput, error) {
		return move(ctx, c, in, c.service.Branch)
	})
}

// move makes a workspace of a snapshot, and has the agent work in it.
func move(
	ctx context.Context, c *call, in moveInput, make func(context.Context, api.RestoreRequest) (api.Workspace, error),
) (moveOutput, error) {
	at, err := c.here(ctx)
	if err != nil {
		return moveOutput{}, err
	}
	if in.Name != "" {
		if err := api.ValidWorkspaceName(in.Name); err != nil {
			return moveOutput{}, err
		}
	}
	s, err := c.find(ctx, at, in.Snapshot)
	if err != nil {
		return moveOutput{}, err
	}
	w, err := make(ctx, api.RestoreRequest{Access: c.Access, Snapshot: s.ID, Name: in.Name})
	if err != nil {
		return moveOutput{}, err
	}
	// It is there: that the client has gone in this moment must not keep the position from following.
	if err := c.move(context.WithoutCancel(ctx), w.ID); err != nil {
		return moveOutput{}, err
	}
	return moveOutput{At{w.ID, at.notice}, at.ID, snapshotOf(s)}, nil
}

// sortNewest sorts snapshots by their ids, which grow.
func sortNewest(all []Snapshot) {
	slices.SortFunc(all, func(a, b Snapshot) int { return cmp.Compare(b.ID, a.ID) })
}
