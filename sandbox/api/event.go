package api

import (
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
	EventImportStarted   EventKind = "import_started" // the workspace stands on its directory, which is being imported
	EventImportEnded     EventKind = "import_ended"   // it is in the store
	EventImportFailed    EventKind = "import_failed"  // and is tried again
	EventSourceChanged   EventKind = "source_changed" // a file in the directory, after the workspace had shown it
	EventRestored        EventKind = "restored"
	EventBranched        EventKind = "branched"
	EventForked          EventKind = "forked"
	EventRolledBack      EventKind = "rolled_back"
	EventApplied         EventKind = "applied"
	EventPaused          EventKind = "paused"
	EventResumed         EventKind = "resumed"
	EventSnapshotDeleted EventKind = "snapshot_deleted"
	EventSnapshotExpired EventKind = "snapshot_expired"
	EventDestroyed       EventKind = "destroyed"
	EventRenamed         EventKind = "renamed"
	EventQuota           EventKind = "quota" // its limits were changed; Detail has them
	EventCrossSession    EventKind = "cross_session"
	EventDaemonCrashed   EventKind = "daemon_crashed"  // while the workspace was mounted; Detail says how
	EventRequestRefused  EventKind = "request_refused" // with EIO, as daemons have died of it; Detail says which
	EventTokenCreated    EventKind = "token_created"   // of no workspace; Detail begins with the token's id
	EventTokenRevoked    EventKind = "token_revoked"
	EventCallRefused     EventKind = "call_refused" // of the service; Detail says which, to whom and why
)

// Event is one line of a workspace's append-only log, or, without a Workspace, of what is about tokens and their calls.
type Event struct {
	ID        string    `json:"id"` // UUIDv7: order and time
	Workspace string    `json:"workspace"`
	Kind      EventKind `json:"kind"`
	At        time.Time `json:"at"`
	Session   string    `json:"session,omitempty"` // who did it; "" is the home itself
	Owner     string    `json:"owner,omitempty"`   // session of which something was used that is of no workspace
	Snapshot  string    `json:"snapshot,omitempty"`
	Level     string    `json:"level"`            // info or warn
	Detail    string    `json:"detail,omitempty"` // one line
}

// EventKinds gives all kinds.
func EventKinds() []EventKind { return slices.Clone(eventKinds) }

var eventKinds = []EventKind{
	EventCreated, EventMounted, EventUnmounted, EventSnapshotted, EventStored, EventRestored, EventBranched,
	EventForked, EventRolledBack, EventApplied, EventPaused, EventResumed, EventSnapshotDeleted, EventSnapshotExpired,
	EventDestroyed, EventRenamed, EventQuota, EventCrossSession, EventImportStarted, EventImportEnded, EventImportFailed,
	EventSourceChanged, EventDaemonCrashed, EventRequestRefused, EventTokenCreated, EventTokenRevoked, EventCallRefused,
}

// Begins reports whether an event is the first of a workspace's life under its name: its Session owns the workspace.
func (e Event) Begins() bool {
	return e.Kind == EventCreated || e.Kind == EventRenamed && e.Snapshot == ""
}

// Known reports whether this version knows the kind.
func (k EventKind) Known() bool { return slices.Contains(eventKinds, k) }
