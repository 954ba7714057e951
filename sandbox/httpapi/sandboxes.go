package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// templateDefault is the template that is an empty tree if no snapshot has its name; templateEmpty always is.
const (
	templateDefault = "default"
	templateEmpty   = "empty"
)

// Bounds of a part of a list.
const (
	defaultPart = 100
	maxPart     = 1000
)

type claimInput struct {
	Body *ClaimRequest
}

type updateInput struct {
	ID   string `path:"id"`
	Body UpdateRequest
}

type listInput struct {
	Status     string `query:"status" enum:"starting,running,paused,terminating,failed"`
	TemplateID string `query:"template_id" maxLength:"1024"`
	Paused     string `query:"paused" enum:"true,false"`
	Limit      int    `query:"limit" minimum:"0"`
	Offset     int    `query:"offset" minimum:"0"`
}

func (s *Server) addSandboxes() {
	const tag = "sandboxes"
	add(s, operation{
		method: http.MethodPost, path: "/sandboxes", id: "claim-sandbox", tag: tag, scope: api.ScopeWorkspaces,
		summary: "Make a sandbox of a template or a snapshot", status: http.StatusCreated,
	}, s.claim)
	add(s, operation{
		method: http.MethodGet, path: "/sandboxes", id: "list-sandboxes", tag: tag, scope: api.ScopeRead,
		summary: "List sandboxes",
	}, s.list)
	add(s, operation{
		method: http.MethodGet, path: "/sandboxes/{id}", id: "get-sandbox", tag: tag, scope: api.ScopeRead,
		summary: "Describe a sandbox",
	}, func(ctx context.Context, who api.Access, in *byID) (Sandbox, error) {
		w, err := s.sandbox(ctx, who, in.ID)
		return describe(w), err
	})
	add(s, operation{
		method: http.MethodGet, path: "/sandboxes/{id}/status", id: "get-sandbox-status", tag: tag, scope: api.ScopeRead,
		summary: "Describe a sandbox in short",
	}, func(ctx context.Context, who api.Access, in *byID) (SandboxStatus, error) {
		w, err := s.sandbox(ctx, who, in.ID)
		return shortly(w), err
	})
	add(s, operation{
		method: http.MethodPut, path: "/sandboxes/{id}", id: "update-sandbox", tag: tag, scope: api.ScopeWorkspaces,
		summary: "Change the ends of a sandbox and whether it is resumed",
	}, s.update)
	add(s, operation{
		method: http.MethodDelete, path: "/sandboxes/{id}", id: "delete-sandbox", tag: tag, scope: api.ScopeWorkspaces,
		summary: "Destroy a sandbox, mounted or not; what no snapshot has is kept for a week",
	}, func(ctx context.Context, who api.Access, in *byID) (Message, error) {
		w, err := s.sandbox(ctx, who, in.ID)
		if err != nil {
			return Message{}, err
		}
		return Message{Message: "sandbox " + w.ID + " is deleted"}, s.destroy(ctx, who, w, true)
	})
}

// sandbox looks a sandbox up. A volume is none.
func (s *Server) sandbox(ctx context.Context, who api.Access, id string) (api.Workspace, error) {
	w, err := s.workspace(ctx, who, "sandbox", id)
	if err == nil && isVolume(w) {
		err = fmt.Errorf("%w: sandbox %s: it is a volume", api.ErrNotFound, id)
	}
	return w, err
}

// workspace looks a workspace up that is to be something. A view of a snapshot is nothing that the adapter knows.
func (s *Server) workspace(ctx context.Context, who api.Access, what, id string) (api.Workspace, error) {
	if err := checkWorkspace(what, id); err != nil {
		return api.Workspace{}, err
	}
	o, err := s.service.Show(ctx, api.RefRequest{Access: who, Ref: id})
	if err != nil {
		return api.Workspace{}, err
	}
	if o.Workspace == nil || o.Workspace.ID != id || o.Workspace.View {
		return api.Workspace{}, fmt.Errorf("%w: %s %s", api.ErrNotFound, what, id)
	}
	return *o.Workspace, nil
}

// claim makes a sandbox. If it fails, or the caller goes away before it is there, there is none.
func (s *Server) claim(ctx context.Context, who api.Access, in *claimInput) (Claim, error) {
	r := ClaimRequest{}
	if in.Body != nil {
		r = *in.Body
	}
	if len(r.Mounts) > 0 {
		return Claim{}, absent("mounts of volumes in sandboxes")
	}
	name, snapshot, err := s.template(ctx, who, r.Template)
	if err != nil {
		return Claim{}, err
	}
	if r.SnapshotID != "" {
		if err := checkSnapshot(r.SnapshotID); err != nil {
			return Claim{}, err
		}
		snapshot = r.SnapshotID
	}
	labels := api.Labels{labelKind: kindSandbox, labelTemplate: name, labelGeneration: "1"}
	if err := configure(labels, r.Config, s.o.Now()); err != nil {
		return Claim{}, err
	}
	w, err := s.begin(ctx, who, newName("sb"), snapshot, labels)
	if err != nil {
		return Claim{}, err
	}
	s.poke()
	return Claim{SandboxID: w.ID, Status: state(w), PodName: w.ID, Template: name, BootstrapMounts: []any{}}, nil
}

// template looks a template up: its name, and the snapshot that it is, "" for the empty tree.
func (s *Server) template(ctx context.Context, who api.Access, name string) (string, string, error) {
	if name == "" {
		name = templateDefault
	}
	if name == templateEmpty {
		return name, "", nil
	}
	snapshot, err := s.named(ctx, who, name)
	if name == templateDefault && errors.Is(err, api.ErrNotFound) {
		return name, "", nil
	}
	return name, snapshot.ID, err
}

// named looks up the snapshot that a template is.
func (s *Server) named(ctx context.Context, who api.Access, name string) (api.Snapshot, error) {
	if err := checkTemplate(name); err != nil {
		return api.Snapshot{}, err
	}
	o, err := s.service.Show(ctx, api.RefRequest{Access: who, Ref: name})
	if errors.Is(err, api.ErrRefused) && !api.IsID(name) { // a name can be guessed
		caller.From(ctx).Refuse("template", err)
		return api.Snapshot{}, fmt.Errorf("%w: template %s", api.ErrNotFound, name)
	}
	if err != nil {
		return api.Snapshot{}, err
	}
	if o.Snapshot == nil {
		return api.Snapshot{}, fmt.Errorf("%w: template %s", api.ErrNotFound, name)
	}
	return *o.Snapshot, nil
}

// begin makes a workspace of a snapshot, "" for an empty one, and mounts it. After an error there is none.
func (s *Server) begin(
	ctx context.Context, who api.Access, name, snapshot string, labels api.Labels,
) (w api.Workspace, err error) {
	if snapshot == "" {
		w, err = s.service.Create(ctx, api.CreateRequest{Access: who, Name: name, Labels: labels})
	} else {
		w, err = s.service.Restore(ctx, api.RestoreRequest{Access: who, Snapshot: snapshot, Name: name, Labels: labels})
	}
	if err != nil {
		return w, err
	}
	w, err = s.mount(ctx, who, w)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return w, errors.Join(err, s.undo(ctx, who, name))
	}
	return w, nil
}

// undo destroys a workspace that was just made, and that nobody knows.
func (s *Server) undo(ctx context.Context, who api.Access, name string) error {
	ctx = context.WithoutCancel(ctx)
	w, err := s.workspace(ctx, who, "workspace", name)
	if err != nil {
		return err
	}
	if w.State != api.Unmounted {
		_, err = s.service.Unmount(ctx, api.UnmountRequest{Access: who, Workspace: name, Force: true})
	}
	_, e := s.service.Destroy(ctx, api.DestroyRequest{Access: who, Ref: name, Now: true})
	return errors.Join(err, e)
}

// destroy removes a workspace. With force also while programs use it.
func (s *Server) destroy(ctx context.Context, who api.Access, w api.Workspace, force bool) error {
	if w.State != api.Unmounted {
		_, err := s.service.Unmount(ctx, api.UnmountRequest{Access: who, Workspace: w.ID})
		if force && errors.Is(err, api.ErrConflict) {
			_, err = s.service.Unmount(ctx, api.UnmountRequest{Access: who, Workspace: w.ID, Force: true})
		}
		if err != nil {
			return err
		}
	}
	_, err := s.service.Destroy(ctx, api.DestroyRequest{Access: who, Ref: w.ID})
	return err
}

func (s *Server) update(ctx context.Context, who api.Access, in *updateInput) (Sandbox, error) {
	w, err := s.sandbox(ctx, who, in.ID)
	if err != nil {
		return Sandbox{}, err
	}
	now := s.o.Now()
	labels := api.Labels{labelUpdated: now.UTC().Format(time.RFC3339Nano)}
	if err := configure(labels, in.Body.Config, now); err != nil {
		return Sandbox{}, err
	}
	w, err = s.service.Label(ctx, api.LabelRequest{Access: who, Workspace: w.ID, Put: labels})
	s.poke()
	return describe(w), err
}

func (s *Server) list(ctx context.Context, who api.Access, in *listInput) (SandboxList, error) {
	limit := min(in.Limit, maxPart)
	if limit == 0 {
		limit = defaultPart
	}
	out := SandboxList{Sandboxes: []SandboxSummary{}}
	err := s.workspaces(ctx, who, func(w api.Workspace) {
		if isVolume(w) || !in.match(w) {
			return
		}
		if out.Count++; out.Count > in.Offset && len(out.Sandboxes) < limit {
			out.Sandboxes = append(out.Sandboxes, summary(w))
		}
	})
	out.HasMore = in.Offset+len(out.Sandboxes) < out.Count
	return out, err
}

// match reports whether a sandbox is asked for.
func (in *listInput) match(w api.Workspace) bool {
	paused := state(w) == Paused
	return (in.Status == "" || in.Status == string(state(w))) &&
		(in.Paused == "" || in.Paused == fmt.Sprint(paused)) &&
		(in.TemplateID == "" || in.TemplateID == factsOf(w).template)
}

// workspaces goes through the workspaces that somebody may see, in order of names.
func (s *Server) workspaces(ctx context.Context, who api.Access, fn func(api.Workspace)) error {
	r := api.ListRequest{Access: who}
	for {
		page, err := s.service.Workspaces(ctx, r)
		if err != nil {
			return err
		}
		for _, w := range page.Workspaces {
			fn(w)
			r.After = r.Cursor(w)
		}
		if !page.More || len(page.Workspaces) == 0 {
			return nil
		}
	}
}

func summary(w api.Workspace) SandboxSummary {
	d := describe(w)
	return SandboxSummary{
		ID: d.ID, TemplateID: d.TemplateID, Status: d.Status, Paused: d.Paused, RuntimeGeneration: d.RuntimeGeneration,
		CreatedAt: d.CreatedAt, ExpiresAt: d.ExpiresAt, HardExpiresAt: d.HardExpiresAt, UpdatedAt: d.UpdatedAt,
	}
}

func shortly(w api.Workspace) SandboxStatus {
	d := describe(w)
	text := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return at.UTC().Format(time.RFC3339Nano)
	}
	return SandboxStatus{
		SandboxID: d.ID, TemplateID: d.TemplateID, TeamID: d.TeamID, PodName: d.PodName, Status: d.Status,
		ClaimedAt: text(d.ClaimedAt), ExpiresAt: text(d.ExpiresAt), HardExpiresAt: text(d.HardExpiresAt),
		CreatedAt: text(d.CreatedAt),
	}
}
