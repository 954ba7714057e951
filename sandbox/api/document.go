package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Documents are calls about the state of agents beside files: JSON documents of an agent's session, each in a scope, as the
// storage interface of agent frameworks has them. They are in the store of the home, deduplicated and compressed, and
// belong to a session of snapfs as workspaces do: the names of agents' sessions are each session's own. Safe for
// concurrent use.
//
// A scope has one latest document, which is replaced, any number of immutable ones with a UUIDv7 as id, and a manifest.
type Documents interface {
	// SaveDocument stores a document: the latest one without an ID, an immutable one with an ID, ErrConflict if that is
	// there with other contents. When it returns, the document survives a loss of power. The result has no Body.
	SaveDocument(ctx context.Context, r SaveDocumentRequest) (Document, error)
	// LoadDocument gives a document; ErrNotFound if there is none.
	LoadDocument(ctx context.Context, r DocumentRequest) (Document, error)
	// ReadDocument is LoadDocument piece by piece: to is told of the document, without its contents, and says where these
	// go, which may have a part of them after an error.
	ReadDocument(ctx context.Context, r DocumentRequest, to func(Document) (io.Writer, error)) error
	// ListDocuments lists immutable documents of a scope in the order of their ids, which is that of time, or the documents
	// that are tied to a snapshot, without their contents.
	ListDocuments(ctx context.Context, r ListDocumentsRequest) (DocumentPage, error)
	// DeleteDocument deletes one document. Idempotent.
	DeleteDocument(ctx context.Context, r DocumentRequest) error
	// DeleteAgentSession deletes all documents of an agent's session. Idempotent. What a crash leaves of a session with
	// thousands of them, the next call deletes.
	DeleteAgentSession(ctx context.Context, r AgentSessionRequest) error
}

// Kinds of a document's scope.
const (
	AgentScope      = "agent"
	MultiAgentScope = "multiAgent"
)

// Bounds of documents.
const (
	// MaxDocument is how many bytes a document may have, as it is stored: without blanks between its values.
	MaxDocument = 64 << 20
	// MaxDocuments is how many documents a session may have.
	MaxDocuments = 100_000
	// MaxTied is how many documents may be tied to one snapshot.
	MaxTied = 256
	// MaxDocumentPage is how many documents a page has at most.
	MaxDocumentPage = 1000

	maxAgentID = 128
)

// Identifiers of agents' sessions and scopes.
var agentGrammar = grammar(`^[a-z0-9_-]+$`)

// ValidAgentID says what is wrong with the identifier of an agent's session or scope, which what names; ErrInvalid.
func ValidAgentID(what, id string) error {
	if len(id) > maxAgentID || !agentGrammar().MatchString(id) {
		return fmt.Errorf("%w: %s %s: 1 to %d lower-case letters, digits, _ and -", ErrInvalid, what, Quoted(id), maxAgentID)
	}
	return nil
}

// ValidDocumentID says what is wrong with the id of an immutable document, which what names; ErrInvalid. It is a UUIDv7
// in lower case, as ids of snapfs are.
func ValidDocumentID(what, id string) error {
	const version, variant = len("00000000-0000-"), len("00000000-0000-0000-")
	if !IsID(id) || id[version] != '7' || id[variant] < '8' || id[variant] > 'b' {
		return fmt.Errorf("%w: %s %s is no UUIDv7", ErrInvalid, what, Quoted(id))
	}
	return nil
}

// AgentSessionRequest names an agent's session. Owner is the session of snapfs that it belongs to, if that is not the
// one that asks: ErrRefused without AllowCrossSession.
type AgentSessionRequest struct {
	Access
	Owner        string `json:"owner,omitempty"`
	AgentSession string `json:"agent_session"`
}

// OwnerID is the session whose documents are meant; ErrInvalid for a malformed one.
func (r AgentSessionRequest) OwnerID() (string, error) {
	if r.Owner == "" {
		return r.SessionID()
	}
	return r.Owner, ValidSession(r.Owner)
}

// Valid says what is wrong with the identifier; ErrInvalid.
func (r AgentSessionRequest) Valid() error { return ValidAgentID("agent session", r.AgentSession) }

// DocumentRequest names a document: that with an ID, or the latest, or with Manifest the scope's manifest.
type DocumentRequest struct {
	AgentSessionRequest
	Kind     string `json:"kind"` // AgentScope or MultiAgentScope
	Scope    string `json:"scope"`
	ID       string `json:"id,omitempty"`
	Manifest bool   `json:"manifest,omitempty"`
}

// ValidScope says what is wrong with the scope; ErrInvalid.
func (r DocumentRequest) ValidScope() error {
	if err := r.AgentSessionRequest.Valid(); err != nil {
		return err
	}
	if r.Kind != AgentScope && r.Kind != MultiAgentScope {
		return fmt.Errorf("%w: kind %s of a scope is neither %s nor %s", ErrInvalid, Quoted(r.Kind), AgentScope, MultiAgentScope)
	}
	return ValidAgentID("scope", r.Scope)
}

// Valid says what is wrong with the name of the document; ErrInvalid.
func (r DocumentRequest) Valid() error {
	if err := r.ValidScope(); err != nil || r.ID == "" {
		return err
	}
	if r.Manifest {
		return fmt.Errorf("%w: the manifest of a scope has no id", ErrInvalid)
	}
	return ValidDocumentID("document", r.ID)
}

// SaveDocumentRequest stores Body, which is JSON in UTF-8 of at most MaxDocument bytes. With a Snapshot, the document is
// tied to that: it is deleted with it, and found by it; ErrConflict if MaxTied documents are. A manifest cannot be tied.
type SaveDocumentRequest struct {
	DocumentRequest
	Snapshot string          `json:"snapshot,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"`
}

// Document is a stored document.
type Document struct {
	AgentSession string          `json:"agent_session"`
	Kind         string          `json:"kind"`
	Scope        string          `json:"scope"`
	ID           string          `json:"id,omitempty"` // of an immutable one
	Manifest     bool            `json:"manifest,omitempty"`
	Body         json.RawMessage `json:"body,omitempty"`
	Size         int64           `json:"size"`
	Snapshot     string          `json:"snapshot,omitempty"` // that it is tied to
	UpdatedAt    time.Time       `json:"updated_at"`
}

// ListDocumentsRequest pages through immutable documents of a scope. After is exclusive and a UUIDv7; Limit ≤ 0 gives
// none, and is clamped at MaxDocumentPage. With a Snapshot it asks for the documents that are tied to that, immutable or
// not, of all scopes; of all agents' sessions of the owner unless AgentSession is given. Kind, Scope and After are then
// empty.
type ListDocumentsRequest struct {
	DocumentRequest
	After    string `json:"after,omitempty"`
	Limit    int    `json:"limit"`
	Snapshot string `json:"snapshot,omitempty"`
}

// Valid says what is wrong with the request; ErrInvalid.
func (r ListDocumentsRequest) Valid() error {
	if r.ID != "" || r.Manifest {
		return fmt.Errorf("%w: a list is of a scope, or of a snapshot", ErrInvalid)
	}
	if r.Snapshot != "" {
		if r.Kind != "" || r.Scope != "" || r.After != "" {
			return fmt.Errorf("%w: a list of what is tied to a snapshot is of no scope, and has one page", ErrInvalid)
		}
		if r.AgentSession == "" {
			return nil
		}
		return r.AgentSessionRequest.Valid()
	}
	if err := r.ValidScope(); err != nil || r.After == "" {
		return err
	}
	return ValidDocumentID("cursor", r.After)
}

// DocumentPage is one page; More says that another follows.
type DocumentPage struct {
	Documents []Document `json:"documents"`
	More      bool       `json:"more"`
}
