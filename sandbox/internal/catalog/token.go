package catalog

import (
	"cmp"
	"slices"
	"time"

	"snapfs/sandbox/api"
)

// Token is what is durable of a token. Immutable.
type Token struct {
	ID          string      `json:"id"`
	Session     string      `json:"session"`
	Description string      `json:"description,omitempty"`
	Scopes      []api.Scope `json:"scopes"`
	CreatedAt   time.Time   `json:"created_at"`
	ExpiresAt   *time.Time  `json:"expires_at,omitempty"`
	Sum         []byte      `json:"sum"` // SHA-256 of the secret
}

// Expired reports whether the token is past its time.
func (r *Token) Expired(now time.Time) bool { return r.ExpiresAt != nil && !now.Before(*r.ExpiresAt) }

// Token gives the token with an id, nil if there is none.
func (c *Catalog) Token(id string) *Token {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.index.tokens[id]
}

// Tokens gives the tokens of a session, of all with "", in the order of their ids.
func (c *Catalog) Tokens(session string) []*Token {
	c.mu.RLock()
	var found []*Token
	for _, t := range c.index.tokens {
		if session == "" || t.Session == session {
			found = append(found, t)
		}
	}
	c.mu.RUnlock()
	slices.SortFunc(found, func(a, b *Token) int { return cmp.Compare(a.ID, b.ID) })
	return found
}
