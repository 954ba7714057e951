package sandbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"snapfs/sandbox"
)

// Ids of immutable documents in the life of a crashRun.
const (
	documentA = "018f0000-0000-7000-8000-00000000000a"
	documentB = "018f0000-0000-7000-8000-00000000000b"
)

// noDocument is what a ledger has for a document that may be missing.
const noDocument = "none"

// documentAt names a document by agent's session and name, as the ledger does.
func documentAt(name string) sandbox.DocumentRequest {
	agent, id, _ := strings.Cut(name, "/")
	r := sandbox.DocumentRequest{Kind: sandbox.AgentScope, Scope: "a"}
	switch r.AgentSession = agent; id {
	case "latest":
	case "manifest":
		r.Manifest = true
	default:
		r.ID = id
	}
	return r
}

// save stores a document, tied to a snapshot unless tied is "".
func (r *crashRun) save(name, tied, body string) func(context.Context) error {
	return func(ctx context.Context) error {
		body = fmt.Sprintf(`{"text":%q}`, strings.Repeat(body+" ", 300))
		r.promise(func(l *ledger) {
			before := l.Documents[name]
			if before == nil {
				before = []string{noDocument}
			}
			l.Documents[name] = append(slices.Clone(before), body)
		})
		_, err := r.h.SaveDocument(ctx, sandbox.SaveDocumentRequest{
			DocumentRequest: documentAt(name), Snapshot: r.ids[tied], Body: json.RawMessage(body),
		})
		if err == nil {
			r.promise(func(l *ledger) { l.Documents[name] = []string{body} })
		}
		return err
	}
}

// dropDocuments deletes documents by a call.
func (r *crashRun) dropDocuments(call func(context.Context) error, names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		r.promise(func(l *ledger) {
			for _, name := range names {
				l.Documents[name] = append(l.Documents[name], noDocument)
			}
		})
		err := call(ctx)
		if err == nil {
			r.promise(func(l *ledger) {
				for _, name := range names {
					l.Documents[name] = []string{noDocument}
				}
			})
		}
		return err
	}
}

// documentSteps save documents, two of them tied to snapshot s2, and delete some.
func (r *crashRun) documentSteps() []crashStep {
	return []crashStep{
		{"save a document", r.save("one/latest", "", "first")},
		{"save a tied document", r.save("one/"+documentA, "s2", "first")},
		{"save another tied document", r.save("two/latest", "s2", "other")},
		{"save a manifest", r.save("one/manifest", "", "manifest")},
		{"replace a document", r.save("one/latest", "", "first, and second")},
		{"save an immutable document", r.save("three/"+documentA, "", "third")},
		{"save one more", r.save("three/"+documentB, "", "third, and fourth")},
		{"delete a document", r.dropDocuments(func(ctx context.Context) error {
			return r.h.DeleteDocument(ctx, documentAt("three/"+documentA))
		}, "three/"+documentA)},
		{"delete an agent's session", r.dropDocuments(func(ctx context.Context) error {
			return r.h.DeleteAgentSession(ctx, documentAt("three/latest").AgentSessionRequest)
		}, "three/"+documentB)},
	}
}

// documents compares the documents of a home with what was promised.
func (v *verifier) documents(ctx context.Context, h *sandbox.Home) {
	v.t.Helper()
	for name, want := range v.ledger.Documents {
		d, err := h.LoadDocument(ctx, documentAt(name))
		got := string(d.Body)
		if errors.Is(err, sandbox.ErrNotFound) {
			got, err = noDocument, nil
		}
		if err != nil || !slices.Contains(want, got) {
			v.t.Errorf("document %s: %.60q, %v, want one of %.60q", name, got, err, want)
		}
	}
}

// dropAllDocuments deletes what documents are left.
func (v *verifier) dropAllDocuments(ctx context.Context, h *sandbox.Home) {
	v.t.Helper()
	for _, agent := range []string{"one", "two", "three"} {
		if err := h.DeleteAgentSession(ctx, documentAt(agent+"/latest").AgentSessionRequest); err != nil {
			v.t.Error(err)
		}
	}
}
