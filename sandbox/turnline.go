package sandbox

import (
	"iter"

	"snapfs/sandbox/internal/catalog"
)

// The line of a workspace is the way that Undo and Redo go: from the snapshot to which Redo leads, or else the newest of
// its history, through the parents down to what its first turn was made on. A parent that is deleted is passed over.

// lineState is a state in a line, of one or more snapshots without a change between them.
type lineState struct {
	snapshot *catalog.Snapshot // the newest of them; nil: no snapshot has the state, which is the workspace's
	turn     int               // number of the turn among them; 0 if there is none
}

// position gives the states of a workspace's line, newest first, and at which of them the workspace is, what is unsaved
// aside.
func (h *Home) position(w *catalog.Workspace) (line []lineState, at int) {
	for _, tip := range []string{w.Redo, w.Head} {
		if line, at = h.statesFrom(w, h.catalog.Snapshot(tip)); at >= 0 {
			return line, at
		}
	}
	line, _ = h.statesFrom(w, h.lower(w, w.Base, ""))
	return append([]lineState{{}}, line...), 0
}

// statesFrom gives the states of a line from a snapshot on, which may be nil, and which of them is the workspace's; -1 if
// none is.
func (h *Home) statesFrom(w *catalog.Workspace, tip *catalog.Snapshot) (line []lineState, at int) {
	at = -1
	base := h.newestState(w)
	for s := range h.lineFrom(w, tip) {
		if n := len(line); n == 0 || line[n-1].snapshot.Top != s.Top {
			line = append(line, lineState{snapshot: s})
		}
		last := len(line) - 1
		if line[last].turn == 0 {
			line[last].turn = s.Turn
		}
		if s.Top == base && at < 0 {
			at = last
		}
	}
	return line, at
}

// lineFrom gives the snapshots of a line, newest first. One that is not the workspace's own is the last: what the
// workspace was made from.
func (h *Home) lineFrom(w *catalog.Workspace, tip *catalog.Snapshot) iter.Seq[*catalog.Snapshot] {
	return func(yield func(*catalog.Snapshot) bool) {
		base := w.Base
		for s := tip; s != nil; {
			if own := w.Took(s); !own && s.Top != base || !yield(s) || !own {
				return
			}
			base = s.ParentTop
			if next := h.catalog.Snapshot(s.Parent); next != nil && next.ID < s.ID {
				s = next
			} else {
				s = h.lower(w, s.Top, s.ID)
			}
		}
	}
}

// lower gives the newest of a workspace's snapshots that is older than an id, or than nothing if that is "", and on whose
// tree the one of a layer was made; nil if there is none.
func (h *Home) lower(w *catalog.Workspace, top, before string) *catalog.Snapshot {
	follows := top
	if l := h.catalog.Layer(top); l != nil && l.Follows != "" {
		follows = l.Follows
	}
	for s := range h.catalog.ListSnapshots(catalog.Query{Workspace: w.ID, After: before, Newest: true}) {
		if !w.Took(s) {
			return nil
		}
		if s.Top == "" || s.Top == follows || h.catalog.Common(top, s.Top) == s.Top {
			return s
		}
	}
	return nil
}
