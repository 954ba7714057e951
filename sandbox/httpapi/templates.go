package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"snapfs/sandbox/api"
)

type templateInput struct {
	Body TemplateRequest
}

type fromSandboxInput struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"a template of this sandbox that is there is the answer"`
	Body           TemplateFromSandboxRequest
}

func (s *Server) addTemplates() {
	const tag = "templates"
	add(s, operation{
		method: http.MethodGet, path: "/templates", id: "list-templates", tag: tag, scope: api.ScopeRead,
		summary: "List the snapshots that have a name, and the template default",
	}, s.listTemplates)
	add(s, operation{
		method: http.MethodGet, path: "/templates/{id}", id: "get-template", tag: tag, scope: api.ScopeRead,
		summary: "Describe a template",
	}, func(ctx context.Context, who api.Access, in *byID) (Template, error) {
		name, id, err := s.template(ctx, who, in.ID)
		if err != nil || id == "" {
			return emptyTemplate(name), err
		}
		snapshot, err := s.snapshot(ctx, who, id)
		return template(snapshot, name), err
	})
	add(s, operation{
		method: http.MethodPost, path: "/templates", id: "create-template", tag: tag, scope: api.ScopeSnapshots,
		summary: "Give a snapshot without a name the name of a template", status: http.StatusCreated,
	}, s.makeTemplate)
	add(s, operation{
		method: http.MethodPost, path: "/templates/from-sandbox", id: "create-template-from-sandbox", tag: tag,
		scope: api.ScopeSnapshots, summary: "Make a template of the present state of a sandbox", status: http.StatusCreated,
	}, s.templateFromSandbox)
	add(s, operation{
		method: http.MethodDelete, path: "/templates/{id}", id: "delete-template", tag: tag, scope: api.ScopeSnapshots,
		summary: "Delete the snapshot that is a template; sandboxes that were made of it stay",
	}, func(ctx context.Context, who api.Access, in *byID) (Message, error) {
		snapshot, err := s.named(ctx, who, in.ID)
		if err != nil {
			return Message{}, err
		}
		return Message{Message: "template " + in.ID + " is deleted"},
			s.service.Delete(ctx, api.RefRequest{Access: who, Ref: snapshot.ID})
	})
}

func (s *Server) listTemplates(ctx context.Context, who api.Access, _ *struct{}) (TemplateList, error) {
	var named []api.Snapshot
	times := map[string]int{}
	err := s.snapshots(ctx, who, "", func(snapshot api.Snapshot) {
		if snapshot.Name != "" && (snapshot.ExpiresAt == nil || s.o.Now().Before(*snapshot.ExpiresAt)) {
			named = append(named, snapshot)
			times[snapshot.Name]++
		}
	})
	out := TemplateList{Templates: []Template{}}
	if times[templateDefault] == 0 {
		out.Templates = append(out.Templates, emptyTemplate(templateDefault))
	}
	for _, snapshot := range named {
		name := snapshot.Name
		if times[name] > 1 {
			name = snapshot.Workspace + ":" + name
		}
		out.Templates = append(out.Templates, template(snapshot, name))
	}
	out.Count = len(out.Templates)
	return out, err
}

// makeTemplate gives a snapshot a name.
func (s *Server) makeTemplate(ctx context.Context, who api.Access, in *templateInput) (Template, error) {
	if err := s.freeTemplate(ctx, who, in.Body.TemplateID); err != nil {
		return Template{}, err
	}
	container, _ := in.Body.Spec["mainContainer"].(map[string]any)
	image, _ := container["image"].(string)
	if !api.IsID(image) {
		return Template{}, absent("templates of container images (only mainContainer.image that is the id of a snapshot)")
	}
	snapshot, err := s.snapshot(ctx, who, image)
	if err != nil {
		return Template{}, err
	}
	if snapshot.Name != "" {
		return Template{}, fmt.Errorf("%w: snapshot %s is the template %s already",
			api.ErrConflict, snapshot.ID, api.Quoted(snapshot.Name))
	}
	o, err := s.service.Rename(ctx, api.RenameRequest{Access: who, Ref: snapshot.ID, Name: in.Body.TemplateID})
	if err != nil {
		return Template{}, err
	}
	return template(*o.Snapshot, in.Body.TemplateID), nil
}

// freeTemplate refuses the name of a new template: one that is malformed, or taken.
func (s *Server) freeTemplate(ctx context.Context, who api.Access, name string) error {
	if name == "" || name == templateEmpty {
		return fmt.Errorf("%w: name of a template: %s", api.ErrInvalid, api.Quoted(name))
	}
	if err := api.ValidSnapshotName(name); err != nil {
		return err
	}
	switch _, err := s.named(ctx, who, name); {
	case err == nil:
		return fmt.Errorf("%w: template %s exists already", api.ErrConflict, name)
	case errors.Is(err, api.ErrNotFound):
		return nil
	default:
		return err
	}
}

func (s *Server) templateFromSandbox(ctx context.Context, who api.Access, in *fromSandboxInput) (Template, error) {
	w, err := s.sandbox(ctx, who, in.Body.SandboxID)
	if err != nil {
		return Template{}, err
	}
	name := in.Body.TemplateID
	if err := s.freeTemplate(ctx, who, name); err != nil {
		if in.IdempotencyKey != "" && errors.Is(err, api.ErrConflict) {
			if snapshot, e := s.named(ctx, who, name); e == nil && snapshot.Workspace == w.ID {
				return template(snapshot, name), nil
			}
		}
		return Template{}, err
	}
	r := api.SnapshotRequest{Access: who, Workspace: w.ID, Name: name}
	if o := in.Body.SpecOverrides; o != nil {
		r.Description = o.Description
	}
	snapshot, err := s.service.Snapshot(ctx, r)
	return template(snapshot, name), err
}

func template(snapshot api.Snapshot, name string) Template {
	return Template{
		TemplateID: name, Scope: "team", TeamID: snapshot.Session,
		Spec:      TemplateSpec{Description: snapshot.Description, DisplayName: name},
		Status:    readySince(snapshot.CreatedAt),
		CreatedAt: snapshot.CreatedAt, UpdatedAt: snapshot.CreatedAt,
	}
}

func readySince(at time.Time) TemplateStatus {
	return TemplateStatus{TemplateCreation{State: "ready", Stage: "reconciling", CapturedAt: at, CompletedAt: at}}
}

func emptyTemplate(name string) Template {
	return Template{
		TemplateID: name, Scope: "public", Spec: TemplateSpec{Description: "an empty tree", DisplayName: name},
		Status: readySince(time.Time{}),
	}
}
