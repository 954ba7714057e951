package api

import (
	"context"
	"time"
)

// Tokens are calls about the tokens with which clients of the service that are no users of this machine prove who they
// are. Only who may use all sessions may make them. Safe for concurrent use.
type Tokens interface {
	// CreateToken makes a token. Nobody can find out its secret later.
	CreateToken(ctx context.Context, r TokenRequest) (NewToken, error)
	// Tokens lists tokens, the oldest first, those that have expired too.
	Tokens(ctx context.Context, r ListRequest) (TokenPage, error)
	// RevokeToken ends a token, which is named by its id or a unique prefix of that; calls under way go on. Idempotent for
	// well-formed ids.
	RevokeToken(ctx context.Context, r RefRequest) error
}

// Scope is a part of the calls.
type Scope string

// Scopes of a token. Each is needed for what it names, and none includes another.
const (
	ScopeRead       Scope = "read"       // look: at files, lists, comparisons, events, exports
	ScopeWrite      Scope = "write"      // change files
	ScopeSnapshots  Scope = "snapshots"  // make and delete snapshots; turns, undo, rollback, apply, documents
	ScopeWorkspaces Scope = "workspaces" // make, mount, pause and destroy workspaces
)

// ScopeMetrics lets a token read what is measured of the whole home, of all sessions. No token has it that was not given it.
const ScopeMetrics Scope = "metrics"

// AllScopes gives the scopes that a token has if none are chosen: all that are about its session alone.
func AllScopes() []Scope { return []Scope{ScopeRead, ScopeWrite, ScopeSnapshots, ScopeWorkspaces} }

// KnownScopes gives all scopes that a token can have.
func KnownScopes() []Scope { return append(AllScopes(), ScopeMetrics) }

// TokenRequest makes a token for the session of Access. TTL 0 means that it does not expire; no Scopes mean AllScopes.
type TokenRequest struct {
	Access
	Description string        `json:"description,omitempty"`
	TTL         time.Duration `json:"ttl,omitempty"`
	Scopes      []Scope       `json:"scopes,omitempty"`
}

// Token describes a token.
type Token struct {
	ID          string     `json:"id"` // UUIDv7
	Session     string     `json:"session"`
	Description string     `json:"description,omitempty"`
	Scopes      []Scope    `json:"scopes"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
}

// NewToken is a token with its secret, the text that clients send.
type NewToken struct {
	Token
	Secret string `json:"secret"`
}

// TokenPage is one page; More says that another follows.
type TokenPage struct {
	Tokens []Token `json:"tokens"`
	More   bool    `json:"more"`
}
