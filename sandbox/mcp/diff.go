package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"snapfs/sandbox/api"
)

type diffInput struct {
	From   string `json:"from,omitempty" jsonschema:"name or id of the snapshot to compare with; the newest one of the workspace if it is not given"`
	To     string `json:"to,omitempty" jsonschema:"name or id of the snapshot that is compared; the workspace as it is now if it is not given"`
	Path   string `json:"path,omitempty" jsonschema:"only what is at or below this path"`
	Patch  bool   `json:"patch,omitempty" jsonschema:"also show the changed lines, as git diff does"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many changes to list, 200 if it is not given, 1000 at most"`
	Offset int    `json:"offset,omitempty" jsonschema:"pass over so many changes, as next_offset of the result before says"`
}

// Change is one changed file.
type Change struct {
	Kind    string `json:"kind" jsonschema:"A added, M modified, D deleted, R renamed, T of another type"`
	Path    string `json:"path"`
	OldPath string `json:"old_path,omitempty"`
	Size    int64  `json:"size" jsonschema:"bytes that the file has now"`
	Patch   string `json:"patch,omitempty"`
}

type diffOutput struct {
	At
	From       string   `json:"from" jsonschema:"what was compared with"`
	To         string   `json:"to" jsonschema:"what was compared"`
	Changes    []Change `json:"changes"`
	Truncated  bool     `json:"truncated"`
	NextOffset int      `json:"next_offset,omitempty" jsonschema:"pass it as offset for more"`
}

func (o diffOutput) text() string {
	var b strings.Builder
	if len(o.Changes) == 0 && !o.Truncated {
		fmt.Fprintf(&b, "No changes from %s to %s.\n", o.From, o.To)
	} else {
		fmt.Fprintf(&b, "Changes from %s to %s:\n", o.From, o.To)
	}
	for _, ch := range o.Changes {
		b.WriteString(ch.Kind + " ")
		if ch.OldPath != "" {
			b.WriteString(ch.OldPath + " -> ")
		}
		b.WriteString(ch.Path + "\n")
	}
	for _, ch := range o.Changes {
		b.WriteString(ch.Patch)
	}
	if o.Truncated {
		fmt.Fprintf(&b, "[truncated: more with offset=%d, or give a path]\n", o.NextOffset)
	}
	return b.String()
}

func (b *builder) addDiff() {
	add(b, tool{
		"workspace_diff", "Show changes",
		"Lists what has changed in the workspace at hand since its newest snapshot, or since a snapshot, or between two. With " +
			"patch=true it shows the changed lines.",
		api.ScopeRead,
		effect{readOnly: true, idempotent: true},
	}, diff)
}

func diff(ctx context.Context, c *call, in diffInput) (diffOutput, error) {
	limit := clamp(in.Limit, 200, 1000)
	if in.Offset < 0 {
		return diffOutput{}, tell(api.ErrInvalid, "offset is 0 or more")
	}
	at, err := c.here(ctx)
	if err != nil {
		return diffOutput{}, err
	}
	r, from, to, err := c.compared(ctx, at, in)
	if err != nil {
		return diffOutput{}, err
	}
	if in.Path != "" && strings.Trim(in.Path, "/") != "" {
		r.Paths = []string{strings.Trim(in.Path, "/")}
	}
	r.Patch = in.Patch
	report, end := c.progress(ctx)
	r.Progress = report
	out := diffOutput{At: at.at(), From: from, To: to, Changes: []Change{}}
	seen, size := 0, 0
	err = c.service.Diff(ctx, r, func(ch api.Change) error {
		if seen++; seen <= in.Offset {
			return nil
		}
		next := changeOf(ch)
		if len(next.Patch) > maxBytes {
			next.Patch = strings.ToValidUTF8(next.Patch[:maxBytes/2], "") + "\n[truncated: read the file itself]\n"
		}
		cost := len(next.Path) + len(next.OldPath) + len(next.Patch)
		if len(out.Changes) == limit || size+cost > maxBytes && len(out.Changes) > 0 {
			out.Truncated, out.NextOffset = true, seen-1
			return errEnough
		}
		size += cost
		out.Changes = append(out.Changes, next)
		return nil
	})
	end()
	if errors.Is(err, api.ErrNotFound) && len(r.Paths) > 0 {
		err = tell(api.ErrNotFound, "%s is in neither of the two: leave path out to see all changes", display(in.Path))
	}
	return out, enough(err)
}

// compared says what is compared, and how to call it.
func (c *call) compared(ctx context.Context, at here, in diffInput) (r api.DiffRequest, from, to string, err error) {
	r.Access = c.Access
	now := "workspace " + at.ID + " as it is now"
	var a, b api.Snapshot
	if in.From != "" {
		if a, err = c.find(ctx, at, in.From); err != nil {
			return r, "", "", err
		}
	}
	if in.To != "" {
		if b, err = c.find(ctx, at, in.To); err != nil {
			return r, "", "", err
		}
	}
	nameA, nameB := "snapshot "+snapshotOf(a).called(), "snapshot "+snapshotOf(b).called()
	switch {
	case in.From != "" && in.To != "":
		r.A, r.B = a.ID, b.ID
		return r, nameA, nameB, nil
	case in.From != "":
		r.A, r.B = a.ID, at.ID
		return r, nameA, now, nil
	case in.To != "":
		r.A, r.Parent = b.ID, true
		return r, "the snapshot before", nameB, nil
	}
	r.A = at.ID
	if at.Head == "" {
		return r, "its beginning", now, nil
	}
	o, err := c.service.Show(ctx, api.RefRequest{Access: c.Access, Ref: at.Head})
	if err != nil || o.Snapshot == nil { // it was deleted
		return r, "its newest snapshot", now, unlessGone(err)
	}
	return r, "its newest snapshot " + snapshotOf(*o.Snapshot).called(), now, nil
}

func changeOf(ch api.Change) Change {
	return Change{
		Kind: ch.Kind, Path: utf8Path(ch.Path), OldPath: utf8Path(ch.OldPath), Size: ch.Size,
		Patch: strings.ToValidUTF8(string(ch.Preamble)+string(ch.Patch), "\ufffd"),
	}
}

// utf8Path is a path as JSON can have it.
func utf8Path(path string) string { return strings.ToValidUTF8(path, "\ufffd") }
