package api

import "time"

// TurnRequest freezes a workspace as the next of its turns, if anything has changed.
type TurnRequest struct {
	Access
	Workspace string `json:"workspace"`
	Message   string `json:"message,omitempty"` // the snapshot's Description
}

// TurnResult says what came of it.
type TurnResult struct {
	Workspace string `json:"workspace"`
	Turn      int    `json:"turn"`      // its number; if nothing changed, that of the turn at which the workspace is; 0: none
	Unchanged bool   `json:"unchanged"` // nothing changed since Snapshot, and nothing was stored
	// Snapshot is the turn, or what the workspace is the same as; nil if that is the workspace as it was made.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// TurnPlace is where a turn is, as seen from its workspace.
type TurnPlace string

// Places of turns. What is in the line is reached by Undo and Redo, what was cut off by Rollback.
const (
	TurnPast    TurnPlace = "past"    // Undo leads there
	TurnCurrent TurnPlace = "current" // the workspace was there last
	TurnUndone  TurnPlace = "undone"  // Redo leads there
	TurnCut     TurnPlace = "cut"     // the workspace went another way from an earlier turn
)

// TurnsRequest lists the turns of a workspace, newest first. After is exclusive, Limit 0 means 100 and is clamped there.
type TurnsRequest struct {
	Access
	Workspace string `json:"workspace"`
	After     string `json:"after,omitempty"` // id of a snapshot
	Limit     int    `json:"limit,omitempty"`
	All       bool   `json:"all,omitempty"`  // those that were cut off, too
	Stat      bool   `json:"stat,omitempty"` // with what each changed
}

// Turn is a snapshot as a step in the life of its workspace.
type Turn struct {
	Number    int        `json:"number"`   // from 1 on; no number is given twice
	Snapshot  string     `json:"snapshot"` // its id
	Session   string     `json:"session"`
	Message   string     `json:"message,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Place     TurnPlace  `json:"place"`
	// Stat is nil if it was not asked for, or if the turns before it in the page changed too much for one call.
	Stat *TurnStat `json:"stat,omitempty"`
}

// TurnStat counts what a turn changed: what is not a directory, and of text files lines.
type TurnStat struct {
	Files     int  `json:"files"`
	Additions int  `json:"additions"`
	Deletions int  `json:"deletions"`
	More      bool `json:"more,omitempty"` // there are more files than Files, and lines were not counted
}

// TurnPage is one page; More says that another follows.
type TurnPage struct {
	Turns []Turn `json:"turns"`
	More  bool   `json:"more"`
}

// UndoRequest moves a workspace along its line of turns; Steps 0 means one.
type UndoRequest struct {
	Access
	Workspace string `json:"workspace"`
	Steps     int    `json:"steps,omitempty"`
	Force     bool   `json:"force,omitempty"` // as of RollbackRequest
}

// UndoResult is the workspace after it has been moved, and what it had that no snapshot had. Undo makes that a turn, to
// which Redo leads; Redo keeps it for a day, as Rollback does.
type UndoResult struct {
	Workspace
	Turn     int       `json:"turn"`      // at which the workspace is; 0: before the first, or at a snapshot that is none
	CanUndo  int       `json:"can_undo"`  // so many steps are left
	CanRedo  int       `json:"can_redo"`  // as above
	KeptTurn int       `json:"kept_turn"` // number of Kept; 0 if it is no turn
	Kept     *Snapshot `json:"kept,omitempty"`
}
