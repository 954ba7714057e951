package sandbox

import (
	"context"
	"iter"
	"maps"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// What is asked of labels.
type (
	Labels       = api.Labels
	LabelRequest = api.LabelRequest
)

// Label changes the labels of a workspace, mounted or not.
func (h *Home) Label(ctx context.Context, r LabelRequest) (Workspace, error) {
	return h.toggle(ctx, r.Access, r.Workspace, "label", func(ctx context.Context, w *catalog.Workspace, _ string) error {
		if err := r.Put.Valid(); err != nil {
			return err
		}
		_, err := h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
			next := *h.catalog.Workspace(w.ID) // its mount may have been recorded as gone meanwhile
			labels := maps.Clone(next.Labels)
			if labels == nil {
				labels = Labels{}
			}
			for _, key := range r.Remove {
				delete(labels, key)
			}
			maps.Copy(labels, r.Put)
			if err := labels.Valid(); err != nil {
				return err
			}
			next.Labels = labels
			ch.PutWorkspaces = append(ch.PutWorkspaces, &next)
			return nil
		})
		return err
	})
}

// Labelled is a workspace with a label, as the process that has the home open sees it.
type Labelled struct {
	Workspace string
	Session   string
	Labels    Labels // not to be changed
}

// Labelled gives all workspaces that have a label, of all sessions. It is for the process itself, which does for their
// owners what the labels say, and so it is no call of the API and in no log.
func (h *Home) Labelled(key string) iter.Seq[Labelled] {
	return func(yield func(Labelled) bool) {
		for _, w := range h.catalog.Workspaces() {
			if _, ok := w.Labels[key]; ok && !yield(Labelled{w.ID, w.Session, w.Labels}) {
				return
			}
		}
	}
}
