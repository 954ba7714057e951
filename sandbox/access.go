package sandbox

import (
	"context"
	"fmt"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

func refused(kind, id string) error {
	return fmt.Errorf("%w: %s %s belongs to another session "+
		"(--allow-cross-session, in Go AllowCrossSession, lets this one use it)", ErrRefused, kind, api.Quoted(id))
}

// audit leaves an event at warn level if session uses what another owns; the access was allowed before.
func (h *Home) audit(ctx context.Context, session, owner, workspace, snapshot, what string) error {
	if session == owner {
		return nil
	}
	e := h.event(EventCrossSession, workspace, session, snapshot, fmt.Sprintf("%s: owned by session %s", what, owner))
	e.Level = "warn"
	h.log.WarnContext(ctx, "cross-session access", "session", session, "owner", owner, "workspace", workspace,
		"snapshot", snapshot, "operation", what)
	_, err := h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		ch.Events = append(ch.Events, e)
		return nil
	})
	return err
}
