package sandbox

import (
	"fmt"
)

// DefaultSnapshots is how many snapshots a session may have where Limits do not say.
const DefaultSnapshots = 100_000

// Limits protect a home from a session that freezes in a loop.
type Limits struct {
	Snapshots int   // of one session; 0 = DefaultSnapshots, below 0 = any number
	Bytes     int64 // of the images of one session's snapshots, shared ones once; 0 = any. Sealed layers do not count.
}

// withinLimits refuses one more snapshot of a session that has reached a limit. Snapshots past their time do not count.
func (h *Home) withinLimits(session string) error {
	most := h.limits.Snapshots
	if most == 0 {
		most = DefaultSnapshots
	}
	if most < 0 && h.limits.Bytes <= 0 {
		return nil
	}
	n, bytes := h.catalog.Usage(session)
	switch {
	case most > 0 && n >= most:
		return fmt.Errorf("%w: session %s has %d snapshots, the limit is %d: delete or prune some",
			ErrConflict, session, n, most)
	case h.limits.Bytes > 0 && bytes >= h.limits.Bytes:
		return fmt.Errorf("%w: the snapshots of session %s hold %d bytes, the limit is %d: delete or prune some",
			ErrConflict, session, bytes, h.limits.Bytes)
	}
	return nil
}
