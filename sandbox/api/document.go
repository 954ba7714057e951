package api

import (
	"context"
	"encoding/json"
	"time"
)

// Documents are calls about the state of agents beside files: JSON documents of an agent's session, each in a scope, as the
// storage interface of agent frameworks has them. They are in the store of the home, deduplicated and compressed, and
// belong to a session of snapfs as workspaces do. Safe for concurrent use.
//
// A scope has one latest document, which is replaced, any number of immutable ones with a UUIDv7 as id, and a manifest.
type Documents interface {
	// SaveDocument stores a document: the latest one without an ID, an immutable one with an ID, ErrConflict if that is
	// there with other contents.
	SaveDocument(ctx context.Context, r SaveDocumentRequest) (Document, error)
	// LoadDocument gives a document; ErrNotFound if there is none.
	LoadDocument(ctx context.Context, r DocumentRequest) (Document, error)
	// ListDocuments lists the ids of immutable documents in time order, without their contents.
	ListDocuments(ctx context.Context, r ListDocumentsRequest) (DocumentPage, error)
	// DeleteDocument deletes one document. Idempotent.
	DeleteDocument(ctx context.Context, r DocumentRequest) error
	// DeleteAgentSession deletes all documents of an agent's session. Idempotent.
	DeleteAgentSession(ctx context.Context, r AgentSessionRequest) error
}

// Kinds of a document's scope.
const (
	AgentScope      = "agent"
	MultiAgentScope = "multiAgent"
)

// Identifiers of agents' sessions and scopes match ^[a-z0-9_-]+$ and have at most 128 bytes.

// AgentSessionRequest names an agent's session.
type AgentSessionRequest struct {
	Access
	AgentSession string `json:"agent_session"`
}

// DocumentRequest names a document: that with an ID, or the latest, or with Manifest the scope's manifest.
type DocumentRequest struct {
	AgentSessionRequest
	Kind     string `json:"kind"` // AgentScope or MultiAgentScope
	Scope    string `json:"scope"`
	ID       string `json:"id,omitempty"`
	Manifest bool   `json:"manifest,omitempty"`
}

// SaveDocumentRequest stores Body, of at most 64 MiB. With a Snapshot, the document is tied to that: it is deleted with it,
// and a restore of it finds the document by it.
type SaveDocumentRequest struct {
	DocumentRequest
	Body     json.RawMessage `json:"body"`
	Snapshot string          `json:"snapshot,omitempty"`
}

// Document is a stored document.
type Document struct {
	ID        string          `json:"id,omitempty"`
	Body      json.RawMessage `json:"body,omitempty"`
	Size      int64           `json:"size"`
	Snapshot  string          `json:"snapshot,omitempty"` // that it is tied to
	UpdatedAt time.Time       `json:"updated_at"`
}

// ListDocumentsRequest pages through immutable documents of a scope, or with a Snapshot through the documents of all
// scopes of the session that are tied to it. After is exclusive and a UUIDv7; Limit ≤ 0 gives none.
type ListDocumentsRequest struct {
	DocumentRequest
	After    string `json:"after,omitempty"`
	Limit    int    `json:"limit"`
	Snapshot string `json:"snapshot,omitempty"`
}

// DocumentPage is one page; More says that another follows.
type DocumentPage struct {
	Documents []Document `json:"documents"`
	More      bool       `json:"more"`
}
