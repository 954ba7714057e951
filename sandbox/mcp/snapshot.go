package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"snapfs/sandbox/api"
)

// maxHistory bounds the workspaces from which one comes that are looked at.
const maxHistory = 16

// Snapshot is a snapshot as tools tell of it.
type Snapshot struct {
	ID          string     `json:"id"`
	Name        string     `json:"name,omitempty"`
	Workspace   string     `json:"of" jsonschema:"the workspace that was frozen"`
	Description string     `json:"description,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	Turn        int        `json:"turn,omitempty" jsonschema:"the turn of an agent after which it was taken, 0 if it was not"`
	State       string     `json:"state" jsonschema:"sealed: frozen and durable; stored: in the store as well"`
	Unchanged   bool       `json:"unchanged,omitempty" jsonschema:"it is equal to the snapshot before"`
}

func snapshotOf(s api.Snapshot) Snapshot {
	return Snapshot{
		ID: s.ID, Name: s.Name, Workspace: s.Workspace, Description: s.Description, CreatedAt: s.CreatedAt,
		ExpiresAt: s.ExpiresAt, Turn: s.Turn, State: string(s.State), Unchanged: s.Unchanged,
	}
}

// line is the snapshot in a list.
func (s Snapshot) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s", s.ID, s.CreatedAt.UTC().Format(time.RFC3339), s.Workspace)
	if s.Name != "" {
		fmt.Fprintf(&b, "  name %q", s.Name)
	}
	if s.Turn > 0 {
		fmt.Fprintf(&b, "  turn %d", s.Turn)
	}
	if s.ExpiresAt != nil {
		fmt.Fprintf(&b, "  expires %s", s.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if s.Description != "" {
		fmt.Fprintf(&b, "  %q", s.Description)
	}
	return b.String()
}

// called is the snapshot in a sentence.
func (s Snapshot) called() string {
	if s.Name != "" {
		return fmt.Sprintf("%q (%s)", s.Name, s.ID)
	}
	return s.ID
}

type snapshotInput struct {
	Name        string `json:"name,omitempty" jsonschema:"a name for the snapshot, unique in the workspace, such as tests-pass"`
	Description string `json:"description,omitempty" jsonschema:"what the state is, in a sentence"`
	TTLHours    int    `json:"ttl_hours,omitempty" jsonschema:"delete the snapshot after so many hours; 0: never"`
	Wait        bool   `json:"wait,omitempty" jsonschema:"wait until the snapshot is in the store, not only frozen and durable; rarely needed"`
}

type snapshotOutput struct {
	At
	Snapshot Snapshot `json:"snapshot"`
}

func (o snapshotOutput) text() string {
	what := "Frozen as snapshot "
	if o.Snapshot.Unchanged {
		what = "Nothing has changed since the snapshot before; this one is equal to it: "
	}
	return what + o.Snapshot.called() + ". workspace_restore brings this state back."
}

type listInput struct {
	Limit int    `json:"limit,omitempty" jsonschema:"how many to list, 20 if it is not given, 100 at most"`
	After string `json:"after,omitempty" jsonschema:"go on after the snapshot with this id, as next_after of the result before says"`
	All   bool   `json:"all,omitempty" jsonschema:"of all workspaces of the session, not only of the one at hand and those that it comes from"`
}

type listOutput struct {
	At
	Snapshots []Snapshot `json:"snapshots"`
	Truncated bool       `json:"truncated"`
	NextAfter string     `json:"next_after,omitempty" jsonschema:"pass it as after for more"`
}

func (o listOutput) text() string {
	if len(o.Snapshots) == 0 {
		return "There are no snapshots of workspace " + o.Workspace + " yet; workspace_snapshot takes one."
	}
	var b strings.Builder
	b.WriteString("Newest first:\n")
	for _, s := range o.Snapshots {
		b.WriteString(s.line() + "\n")
	}
	if o.Truncated {
		fmt.Fprintf(&b, "[truncated: more with after=%s]\n", o.NextAfter)
	}
	return b.String()
}

type deleteInput struct {
	Snapshot string `json:"snapshot" jsonschema:"name or id of the snapshot to delete"`
}

type deleteOutput struct {
	At
	Deleted string `json:"deleted" jsonschema:"id of the snapshot that is gone"`
}

func (o deleteOutput) text() string {
	return "Snapshot " + o.Deleted + " is deleted. Workspaces that were made from it are as they were."
}

func (b *builder) addSnapshots() {
	add(b, tool{
		"workspace_snapshot", "Take a snapshot",
		"Freezes the workspace at hand as it is now, in milliseconds, so that workspace_restore can bring it back. " +
			"Take one before every risky change. Programs go on meanwhile.",
		api.ScopeSnapshots,
		effect{},
	}, takeSnapshot)
	add(b, tool{
		"workspace_list_snapshots", "List snapshots",
		"Lists the snapshots of the workspace at hand and of the workspaces that it comes from, newest first.",
		api.ScopeRead,
		effect{readOnly: true, idempotent: true},
	}, listSnapshots)
	add(b, tool{
		"workspace_delete_snapshot", "Delete a snapshot",
		"Deletes a snapshot for good. Workspaces and other snapshots are not harmed by that.",
		api.ScopeSnapshots,
		effect{destructive: true, idempotent: true},
	}, deleteSnapshot)
}

func takeSnapshot(ctx context.Context, c *call, in snapshotInput) (snapshotOutput, error) {
	if in.TTLHours < 0 || in.TTLHours > 24*365*10 {
		return snapshotOutput{}, tell(api.ErrInvalid, "ttl_hours is 1 to 87600, or 0 for a snapshot that is kept")
	}
	at, err := c.here(ctx)
	if err != nil {
		return snapshotOutput{}, err
	}
	report, end := c.progress(ctx)
	s, err := c.service.Snapshot(ctx, api.SnapshotRequest{
		Access: c.Access, Workspace: at.ID, Name: in.Name, Description: in.Description,
		TTL: time.Duration(in.TTLHours) * time.Hour, WaitStored: in.Wait, Progress: report,
	})
	end()
	if errors.Is(err, api.ErrConflict) && in.Name != "" {
		if _, e := c.service.Show(ctx, api.RefRequest{Access: c.Access, Ref: at.ID + ":" + in.Name}); e == nil {
			err = tell(api.ErrConflict, "there is a snapshot named %q of this workspace already: choose another name, or delete "+
				"that one first with workspace_delete_snapshot", in.Name)
		}
	}
	if err != nil {
		return snapshotOutput{}, err
	}
	return snapshotOutput{at.at(), snapshotOf(s)}, nil
}

func listSnapshots(ctx context.Context, c *call, in listInput) (listOutput, error) {
	limit := clamp(in.Limit, 20, 100)
	at, err := c.here(ctx)
	if err != nil {
		return listOutput{}, err
	}
	out := listOutput{At: at.at(), Snapshots: []Snapshot{}}
	if in.After != "" && !api.IsID(in.After) {
		return out, tell(api.ErrInvalid, "after is the id of a snapshot, as next_after of the result before says")
	}
	of := []string{""}
	if !in.All {
		if of, err = c.history(ctx, at.Workspace); err != nil {
			return out, err
		}
	}
	for _, w := range of {
		page, err := c.service.Snapshots(ctx, api.ListRequest{
			Access: c.Access, Workspace: w, After: in.After, Limit: limit, NewestFirst: true,
		})
		if gone(err) {
			continue // a workspace that is no more
		}
		if err != nil {
			return out, err
		}
		for _, s := range page.Snapshots {
			out.Snapshots = append(out.Snapshots, snapshotOf(s))
		}
		out.Truncated = out.Truncated || page.More
	}
	out.cut(limit)
	return out, nil
}

// cut brings the snapshots of several workspaces into order, and leaves so many.
func (o *listOutput) cut(limit int) {
	sortNewest(o.Snapshots)
	if len(o.Snapshots) > limit {
		o.Snapshots, o.Truncated = o.Snapshots[:limit], true
	}
	if o.Truncated && len(o.Snapshots) > 0 {
		o.NextAfter = o.Snapshots[len(o.Snapshots)-1].ID
	}
}

// history gives the names of a workspace and of those that it comes from, nearest first.
func (c *call) history(ctx context.Context, w api.Workspace) (names []string, err error) {
	names = []string{w.ID}
	for w.Origin != "" && len(names) < maxHistory {
		o, err := c.service.Show(ctx, api.RefRequest{Access: c.Access, Ref: w.Origin})
		if err != nil || o.Snapshot == nil {
			return names, unlessGone(err)
		}
		if o.Snapshot.Workspace == w.ID {
			return names, nil
		}
		names = append(names, o.Snapshot.Workspace)
		o, err = c.service.Show(ctx, api.RefRequest{Access: c.Access, Ref: o.Snapshot.Workspace})
		if err != nil || o.Workspace == nil {
			return names, unlessGone(err)
		}
		w = *o.Workspace
	}
	return names, nil
}

func unlessGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

// find gives the snapshot that a model names: one of the workspace at hand, else of those that it comes from, else of the
// session.
func (c *call) find(ctx context.Context, at here, ref string) (api.Snapshot, error) {
	none := tell(api.ErrNotFound, "no snapshot named %s in this workspace; workspace_list_snapshots lists them", api.Quoted(ref))
	if strings.ContainsRune(ref, '/') || api.ValidReference(ref) != nil {
		return api.Snapshot{}, none
	}
	try := []string{ref}
	if !api.IsID(ref) && !api.IsRef(ref) && !strings.ContainsRune(ref, ':') {
		names, err := c.history(ctx, at.Workspace)
		if err != nil {
			return api.Snapshot{}, err
		}
		try = nil
		for _, name := range names {
			try = append(try, name+":"+ref)
		}
		try = append(try, ref)
	}
	for _, ref := range try {
		o, err := c.service.Show(ctx, api.RefRequest{Access: c.Access, Ref: ref})
		switch {
		case err == nil && o.Snapshot != nil:
			return *o.Snapshot, nil
		case errors.Is(err, api.ErrConflict):
			return api.Snapshot{}, tell(api.ErrConflict, "several snapshots are named %s: give the id of one, which "+
				"workspace_list_snapshots with all=true shows", api.Quoted(ref))
		case err != nil && !gone(err) && !errors.Is(err, api.ErrInvalid):
			return api.Snapshot{}, err
		}
	}
	return api.Snapshot{}, none
}

func deleteSnapshot(ctx context.Context, c *call, in deleteInput) (deleteOutput, error) {
	at, err := c.here(ctx)
	if err != nil {
		return deleteOutput{}, err
	}
	s, err := c.find(ctx, at, in.Snapshot)
	if err != nil {
		return deleteOutput{}, err
	}
	err = c.service.Delete(ctx, api.RefRequest{Access: c.Access, Ref: s.ID})
	return deleteOutput{at.at(), s.ID}, err
}
