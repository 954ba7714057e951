package sandbox

import (
	"context"
	"fmt"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// refusedError says that something belongs to another session.
type refusedError struct {
	kind, id string
	absent   error // what is said where there is nothing of this name; nil: that it is not found
}

func refused(kind, id string) error { return refusedError{kind: kind, id: id} }

func (e refusedError) Error() string {
	return fmt.Sprintf("%v: %s %s belongs to another session "+
		"(--allow-cross-session lets this one use it, and shows whose it is)", ErrRefused, e.kind, api.Quoted(e.id))
}

func (refusedError) Unwrap() error { return ErrRefused }

// Hidden is the error for who must not learn what other sessions have.
func (e refusedError) Hidden() error {
	if e.absent != nil {
		return e.absent
	}
	return fmt.Errorf("%w: %s %s", ErrNotFound, e.kind, api.Quoted(e.id))
}

// audit leaves an event at warn level if session uses what another owns; the access was allowed before.
func (h *Home) audit(ctx context.Context, session, owner, workspace, snapshot, what string) error {
	if session == owner {
		return nil
	}
	e := h.event(EventCrossSession, workspace, session, snapshot, fmt.Sprintf("%s: owned by session %s", what, owner))
	e.Level = "warn"
	if workspace == "" {
		e.Owner = owner
	}
	h.log.WarnContext(ctx, "cross-session access", "session", session, "owner", owner, "workspace", workspace,
		"snapshot", snapshot, "operation", what)
	_, err := h.catalog.Update(ctx, true, func(ch *catalog.Change) error {
		ch.Events = append(ch.Events, e)
		return nil
	})
	return err
}
