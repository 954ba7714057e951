package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"snapfs/chunkstore"
)

// EventKind says what happened.
type EventKind string

// Kinds of event.
const (
	EventCreated         EventKind = "created"
	EventMounted         EventKind = "mounted"
	EventUnmounted       EventKind = "unmounted"
	EventSnapshotted     EventKind = "snapshotted"
	EventStored          EventKind = "stored"
	EventRestored        EventKind = "restored"
	EventBranched        EventKind = "branched"
	EventForked          EventKind = "forked"
	EventSnapshotDeleted EventKind = "snapshot_deleted"
	EventSnapshotExpired EventKind = "snapshot_expired"
	EventDestroyed       EventKind = "destroyed"
	EventCrossSession    EventKind = "cross_session"
)

// Event is one line of a workspace's append-only log.
type Event struct {
	ID        string    `json:"id"` // UUIDv7: order and time
	Workspace string    `json:"workspace"`
	Kind      EventKind `json:"kind"`
	At        time.Time `json:"at"`
	Session   string    `json:"session,omitempty"` // who did it; "" is the home itself
	Snapshot  string    `json:"snapshot,omitempty"`
	Level     string    `json:"level"`            // info or warn
	Detail    string    `json:"detail,omitempty"` // one line
}

func (e *Event) key() string { return e.Workspace + "/" + e.ID }

func (e *Event) known() bool {
	switch e.Kind {
	case EventCreated, EventMounted, EventUnmounted, EventSnapshotted, EventStored, EventRestored, EventBranched, EventForked,
		EventSnapshotDeleted, EventSnapshotExpired, EventDestroyed, EventCrossSession:
		return true
	}
	return false
}

// event makes an entry of a workspace's log.
func (h *Home) event(kind EventKind, workspace, session, snapshot, detail string) Event {
	return Event{
		ID: h.catalog.ids.next(), Workspace: workspace, Kind: kind, At: time.Now().UTC(), Session: session,
		Snapshot: snapshot, Level: "info", Detail: detail,
	}
}

// Events lists the log of a workspace, oldest first, also after the workspace is gone. An event of a kind that this version
// does not know is ErrCorrupt: what it means for the workspace cannot be told. Safe for concurrent use.
func (h *Home) Events(ctx context.Context, r RefRequest) ([]Event, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := ValidWorkspaceName(r.Ref); err != nil {
		return nil, err
	}
	session, err := r.session()
	if err != nil {
		return nil, err
	}
	var events []Event
	prefix := r.Ref + "/"
	err = h.store.View(ctx, func(tx *chunkstore.Tx) error {
		events = nil
		return tx.Scan(bucketEvents, prefix, func(key string, value []byte) (bool, error) {
			if !strings.HasPrefix(key, prefix) {
				return false, nil
			}
			var e Event
			if err := json.Unmarshal(value, &e); err != nil {
				return false, fmt.Errorf("%w: event %s: %w", ErrCorrupt, shown(key), err)
			}
			if !e.known() {
				return false, fmt.Errorf("%w: event %s: unknown kind %s", ErrCorrupt, key, shown(string(e.Kind)))
			}
			events = append(events, e)
			return true, nil
		})
	})
	if err != nil {
		return nil, classify(err)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("%w: workspace %s", ErrNotFound, shown(r.Ref))
	}
	if owner := events[0].Session; owner != session && !r.AllowCrossSession {
		return nil, refused("workspace", r.Ref)
	}
	return events, nil
}
