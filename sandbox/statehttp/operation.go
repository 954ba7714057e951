package statehttp

import (
	"encoding/json"

	"snapfs/sandbox/api"
)

// Operation is one call of the handler. The handler answers what Operations gives, and documents describe it.
type Operation struct {
	Method string
	Path   string // as of [http.ServeMux]
	ID     string // its name
	Scope  api.Scope
	Query  []Parameter // that it takes beside those that every call takes
	Body   any         // zero value of what is sent; nil: nothing is
	Result any         // and of what is answered
	run    func(s *server, x *exchange) error
}

// Parameter is one of the query.
type Parameter struct{ Name, Meaning string }

// CommonQuery are the parameters that every call takes.
func CommonQuery() []Parameter {
	return []Parameter{
		{"session", "the session of snapfs that asks; a token has one"},
		{"owner", "the session whose documents are meant, if that is another one"},
		{"allowCrossSession", "true, if owner is another session"},
	}
}

// Contents stand for the JSON of a document, which may be any.
type Contents = json.RawMessage

// IDPage is a page of the ids of immutable documents.
type IDPage struct {
	IDs  []string `json:"snapshotIds"`
	More bool     `json:"more"`
}

// Operations are all calls.
func Operations() []Operation {
	tie := []Parameter{{"snapshot", "the snapshot of a workspace to which the document is tied"}}
	one, manifest := scopePath+"/snapshots/{id}", scopePath+"/manifest"
	return []Operation{
		{"GET", scopePath + "/snapshots", "list documents", api.ScopeRead, []Parameter{
			{"limit", "how many ids the page has at most"}, {"startAfter", "the id after which the page begins"},
		}, nil, IDPage{}, (*server).list},
		{"GET", one, "load a document", api.ScopeRead, nil, nil, Contents{}, (*server).load},
		{"PUT", one, "save a document", api.ScopeSnapshots, tie, Contents{}, api.Document{}, (*server).save},
		{"DELETE", one, "delete a document", api.ScopeSnapshots, nil, nil, nil, (*server).remove},
		{"GET", manifest, "load a manifest", api.ScopeRead, nil, nil, Manifest{}, (*server).loadManifest},
		{"PUT", manifest, "save a manifest", api.ScopeSnapshots, nil, Manifest{}, api.Document{}, (*server).saveManifest},
		{"DELETE", sessionsPath + "/{agent}", "delete documents", api.ScopeSnapshots, nil, nil, nil, (*server).removeAll},
		{"GET", documentsPath, "list tied documents", api.ScopeRead, []Parameter{
			{"snapshot", "to which they are tied"}, {"agentSession", "of which they are; all without it"},
		}, nil, api.DocumentPage{}, (*server).tied},
	}
}
