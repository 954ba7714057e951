package api

import (
	"context"
	"fmt"
	"time"
)

// Positions are calls about where agents work. An agent that goes from one workspace to another, as by a restore or a
// branch, notes in which one it is, so that it is there again when it is started anew. Safe for concurrent use.
type Positions interface {
	// Position gives a position of the session; ErrNotFound if there is none of that name.
	Position(ctx context.Context, r PositionRequest) (Position, error)
	// SetPosition notes in which workspace, of the session, an agent works. A session has 1,000 positions at most: the one
	// that was set first, and not since, gives way.
	SetPosition(ctx context.Context, r SetPositionRequest) (Position, error)
}

// PositionRequest names a position: as a session is named.
type PositionRequest struct {
	Access
	Name string `json:"name"`
}

// SetPositionRequest notes that an agent works in Workspace.
type SetPositionRequest struct {
	PositionRequest
	Workspace string `json:"workspace"`
}

// Position is where an agent works. It follows a workspace that is renamed, and outlives one that is destroyed.
type Position struct {
	Name      string    `json:"name"`
	Workspace string    `json:"workspace"`
	UpdatedAt time.Time `json:"updated_at"`
}

// ValidPositionName says what is wrong with the name of a position; ErrInvalid.
func ValidPositionName(name string) error {
	if !sessionGrammar().MatchString(name) {
		return fmt.Errorf("%w: position %s: 1 to 128 letters, digits and . _ : @ -, a letter or digit first",
			ErrInvalid, Quoted(name))
	}
	return nil
}
