package sandbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
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
	EventRolledBack      EventKind = "rolled_back"
	EventPaused          EventKind = "paused"
	EventResumed         EventKind = "resumed"
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

// eventKinds are all of them.
var eventKinds = []EventKind{
	EventCreated, EventMounted, EventUnmounted, EventSnapshotted, EventStored, EventRestored, EventBranched, EventForked,
	EventRolledBack, EventPaused, EventResumed, EventSnapshotDeleted, EventSnapshotExpired, EventDestroyed, EventCrossSession,
}

func (e *Event) known() bool { return slices.Contains(eventKinds, e.Kind) }

// event makes an entry of a workspace's log. It gets its id when it is written.
func (h *Home) event(kind EventKind, workspace, session, snapshot, detail string) Event {
	return Event{
		Workspace: workspace, Kind: kind, At: h.now(), Session: session, Snapshot: snapshot, Level: "info", Detail: detail,
	}
}

// decodeEvent reads an entry of the log. A kind that this version does not know is ErrCorrupt: what it means for the
// workspace cannot be told.
func decodeEvent(key string, value []byte) (Event, error) {
	var e Event
	if err := json.Unmarshal(value, &e); err != nil {
		return e, fmt.Errorf("%w: event %s: %w", ErrCorrupt, shown(key), err)
	}
	if !e.known() {
		return e, fmt.Errorf("%w: event %s: unknown kind %s", ErrCorrupt, key, shown(string(e.Kind)))
	}
	return e, nil
}
