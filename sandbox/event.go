package sandbox

import (
	"encoding/json"
	"fmt"

	"snapfs/sandbox/api"
)

// eventKey is the key of an event's record.
func eventKey(e Event) string { return e.Workspace + "/" + e.ID }

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
		return e, fmt.Errorf("%w: event %s: %w", ErrCorrupt, api.Quoted(key), err)
	}
	if !e.Kind.Known() {
		return e, fmt.Errorf("%w: event %s: unknown kind %s", ErrCorrupt, key, api.Quoted(string(e.Kind)))
	}
	return e, nil
}
