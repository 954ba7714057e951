package sandbox

import (
	"fmt"
)

// DefaultSnapshots is how many snapshots a session may have where Limits do not say.
const DefaultSnapshots = 100_000

// DefaultWorkspaces is how many workspaces a session may have where Limits do not say.
const DefaultWorkspaces = 100_000

// Limits protect a home from a session that freezes in a loop, and its disk from the home.
type Limits struct {
	Snapshots int // of one session; 0 = DefaultSnapshots, below 0 = any number
	// Workspaces of one session, mounted or not; 0 = DefaultWorkspaces, below 0 = any number. Calls that make some at the
	// same time may exceed it by their number.
	Workspaces int
	Bytes      int64 // of the images of one session's snapshots, shared ones once; 0 = any. Sealed layers do not count.
	// Home is what the home may take on its disk, in bytes; 0 = any. One that takes as much freezes nothing more, and deletes
	// its oldest snapshots without a name, as GC with MaxSize does, within a minute or so.
	Home int64
}

// SetLimits replaces the limits that Open was given. It may be called at any time; calls under way keep what they began
// with. Events that the new limits do not keep are removed within a minute or so.
func (h *Home) SetLimits(limits Limits, events EventLimits) {
	rules := events.rules()
	h.limits.Store(&limits)
	h.events.rules.Store(&rules)
}

// withinLimits refuses one more snapshot of a session that has reached a limit. Snapshots past their time do not count.
func (h *Home) withinLimits(session string) error {
	limits := *h.limits.Load()
	most := limits.Snapshots
	if most == 0 {
		most = DefaultSnapshots
	}
	if most < 0 && limits.Bytes <= 0 {
		return nil
	}
	n, bytes := h.catalog.Usage(session)
	switch {
	case most > 0 && n >= most:
		return fmt.Errorf("%w: session %s has %d snapshots, the limit is %d: delete or prune some",
			ErrConflict, session, n, most)
	case limits.Bytes > 0 && bytes >= limits.Bytes:
		return fmt.Errorf("%w: the snapshots of session %s hold %d bytes, the limit is %d: delete or prune some",
			ErrConflict, session, bytes, limits.Bytes)
	}
	return nil
}

// roomForWorkspace refuses one more workspace of a session that has reached the limit.
func (h *Home) roomForWorkspace(session string) error {
	most := h.limits.Load().Workspaces
	if most == 0 {
		most = DefaultWorkspaces
	}
	if n := h.catalog.WorkspacesOf(session); most > 0 && n >= most {
		return fmt.Errorf("%w: session %s has %d workspaces, the limit is %d: destroy some", ErrConflict, session, n, most)
	}
	return nil
}
