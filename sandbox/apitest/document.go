package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"snapfs/internal/testseed"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// documents are those of one scope.
func documents(agent, scope string) sandbox.DocumentRequest {
	r := sandbox.DocumentRequest{Kind: sandbox.AgentScope, Scope: scope}
	r.AgentSession = agent
	return r
}

// newID makes the id of an immutable document.
func newID(e *env) string {
	e.Helper()
	return must[uuid.UUID](e)(uuid.NewV7()).String()
}

// save stores a document that is expected to be taken.
func (e *env) save(at sandbox.DocumentRequest, snapshot, body string) sandbox.Document {
	e.Helper()
	return must[sandbox.Document](e)(e.api.SaveDocument(e.Context(),
		sandbox.SaveDocumentRequest{DocumentRequest: at, Snapshot: snapshot, Body: json.RawMessage(body)}))
}

// trySave stores a document and gives the error.
func (e *env) trySave(at sandbox.DocumentRequest, snapshot, body string) error {
	_, err := e.api.SaveDocument(e.Context(),
		sandbox.SaveDocumentRequest{DocumentRequest: at, Snapshot: snapshot, Body: json.RawMessage(body)})
	return err
}

// loaded fails unless a document has a body.
func (e *env) loaded(at sandbox.DocumentRequest, want string) {
	e.Helper()
	d := must[sandbox.Document](e)(e.api.LoadDocument(e.Context(), at))
	equal(e, "document "+at.ID, string(d.Body), want)
	equal(e, "its size", d.Size, int64(len(want)))
}

func (e *env) documentIDs(r sandbox.ListDocumentsRequest) (ids []string, more bool) {
	e.Helper()
	page := must[sandbox.DocumentPage](e)(e.api.ListDocuments(e.Context(), r))
	for _, d := range page.Documents {
		ids = append(ids, d.ID)
	}
	return ids, page.More
}

// documentCalls are the calls about documents.
func documentCalls(a sandbox.API) map[string]func(ctx context.Context) error {
	at := documents("s", "a")
	return map[string]func(ctx context.Context) error{
		"SaveDocument": func(ctx context.Context) error {
			_, err := a.SaveDocument(ctx, sandbox.SaveDocumentRequest{DocumentRequest: at, Body: json.RawMessage(`1`)})
			return err
		},
		"LoadDocument": func(ctx context.Context) error { _, err := a.LoadDocument(ctx, at); return err },
		"ReadDocument": func(ctx context.Context) error {
			return a.ReadDocument(ctx, at, func(sandbox.Document) (io.Writer, error) { return io.Discard, nil })
		},
		"ListDocuments": func(ctx context.Context) error {
			_, err := a.ListDocuments(ctx, sandbox.ListDocumentsRequest{DocumentRequest: at})
			return err
		},
		"DeleteDocument": func(ctx context.Context) error { return a.DeleteDocument(ctx, at) },
		"DeleteAgentSession": func(ctx context.Context) error {
			return a.DeleteAgentSession(ctx, at.AgentSessionRequest)
		},
	}
}

func testDocuments(e *env) {
	at := documents("chat", "agent-1")
	_, err := e.api.LoadDocument(e.Context(), at)
	e.wants(err, sandbox.ErrNotFound, "chat")
	// What comes back is what was given, without blanks: JSON that encoders like to change, too.
	odd := `{"a":"<b>&\u003c\ufffd \u2028","n":1e400,"long":12345678901234567890,"d":1.10,"x":[null,true],"a":2}`
	d := e.save(at, "", " "+strings.Replace(odd, ",", " ,\n\t", 1))
	equal(e, "size", d.Size, int64(len(odd)))
	e.loaded(at, odd)
	equal(e, "written at", time.Since(d.UpdatedAt) < shellTime, true)
	manifest, other := at, documents("chat", "agent-2")
	manifest.Manifest = true
	other.Kind = sandbox.MultiAgentScope
	e.save(manifest, "", `{"schemaVersion":"1.0"}`)
	e.save(other, "", `"other"`)
	e.save(at, "", `{"second":true}`)
	e.loaded(at, `{"second":true}`)
	e.loaded(manifest, `{"schemaVersion":"1.0"}`)
	e.loaded(other, `"other"`)
	e.save(at, "", `null`)
	e.loaded(at, `null`)

	var ids []string
	for i := range 5 {
		one := at
		one.ID = newID(e)
		ids = append(ids, one.ID)
		e.save(one, "", fmt.Sprintf(`{"n":%d}`, i))
	}
	one := at
	one.ID = ids[2]
	e.loaded(one, `{"n":2}`)
	e.save(one, "", `{ "n": 2 }`) // the same once more
	e.wants(e.trySave(one, "", `{"n":3}`), sandbox.ErrConflict, "immutable")

	list := sandbox.ListDocumentsRequest{DocumentRequest: at, Limit: 100}
	got, more := e.documentIDs(list)
	equal(e, "ids", fmt.Sprint(got, more), fmt.Sprint(ids, false))
	list.Limit, list.After = 2, ids[0]
	got, more = e.documentIDs(list)
	equal(e, "a page", fmt.Sprint(got, more), fmt.Sprint(ids[1:3], true))
	list.After = ids[2]
	got, more = e.documentIDs(list)
	equal(e, "the last page", fmt.Sprint(got, more), fmt.Sprint(ids[3:], false))
	list.After = ids[4]
	got, more = e.documentIDs(list)
	equal(e, "what follows the last", fmt.Sprint(got, more), "[] false")
	for _, limit := range []int{0, -1} {
		list.After, list.Limit = "", limit
		got, more = e.documentIDs(list)
		equal(e, "none", fmt.Sprint(got, more), "[] false")
	}

	e.reopen(false)
	e.loaded(one, `{"n":2}`)
	for range 2 {
		if err := e.api.DeleteDocument(e.Context(), one); err != nil {
			e.Error(err)
		}
	}
	_, err = e.api.LoadDocument(e.Context(), one)
	e.wants(err, sandbox.ErrNotFound)
	e.loaded(at, `null`)
	e.save(documents("chat2", "agent-1"), "", `"kept"`)
	equal(e, "documents", must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{})).Documents, 8)
	for range 2 {
		if err := e.api.DeleteAgentSession(e.Context(), at.AgentSessionRequest); err != nil {
			e.Error(err)
		}
	}
	for _, gone := range []sandbox.DocumentRequest{at, manifest, other} {
		_, err = e.api.LoadDocument(e.Context(), gone)
		e.wants(err, sandbox.ErrNotFound)
	}
	e.loaded(documents("chat2", "agent-1"), `"kept"`)
	equal(e, "documents", must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{})).Documents, 1)
	e.sound()
}

// sound fails if a check finds anything.
func (e *env) sound() {
	e.Helper()
	for _, p := range must[sandbox.CheckResult](e)(e.api.Check(e.Context(), sandbox.CheckRequest{ReadData: true})).Problems {
		e.Errorf("check: %s: %s", p.Where, p.What)
	}
}

func testDocumentsRefuse(e *env) {
	good := documents("s", "a")
	for what, change := range map[string]func(r *sandbox.SaveDocumentRequest){
		"session":  func(r *sandbox.SaveDocumentRequest) { r.AgentSession = "A" },
		"empty":    func(r *sandbox.SaveDocumentRequest) { r.AgentSession = "" },
		"path":     func(r *sandbox.SaveDocumentRequest) { r.Scope = "../a" },
		"long":     func(r *sandbox.SaveDocumentRequest) { r.Scope = strings.Repeat("x", 10000) },
		"kind":     func(r *sandbox.SaveDocumentRequest) { r.Kind = "Agent" },
		"id":       func(r *sandbox.SaveDocumentRequest) { r.ID = "latest" },
		"v4":       func(r *sandbox.SaveDocumentRequest) { r.ID = uuid.NewString() },
		"both":     func(r *sandbox.SaveDocumentRequest) { r.ID, r.Manifest = newID(e), true },
		"JSON":     func(r *sandbox.SaveDocumentRequest) { r.Body = json.RawMessage(`{"a":}`) },
		"none":     func(r *sandbox.SaveDocumentRequest) { r.Body = nil },
		"two":      func(r *sandbox.SaveDocumentRequest) { r.Body = json.RawMessage(`{} {}`) },
		"UTF-8":    func(r *sandbox.SaveDocumentRequest) { r.Body = json.RawMessage("\"\xff\"") },
		"owner":    func(r *sandbox.SaveDocumentRequest) { r.Owner = "no owner" },
		"manifest": func(r *sandbox.SaveDocumentRequest) { r.Manifest, r.Snapshot = true, newID(e) },
	} {
		r := sandbox.SaveDocumentRequest{DocumentRequest: good, Body: json.RawMessage(`1`)}
		change(&r)
		_, err := e.api.SaveDocument(e.Context(), r)
		if e.wants(err, sandbox.ErrInvalid); e.Failed() {
			e.Fatalf("that was %s", what)
		}
	}
	e.wants(e.trySave(good, newID(e), `1`), sandbox.ErrNotFound)
	_, err := e.api.ListDocuments(e.Context(), sandbox.ListDocumentsRequest{DocumentRequest: good, After: "x"})
	e.wants(err, sandbox.ErrInvalid)
	large := `"` + strings.Repeat("x", api.MaxDocument) + `"`
	e.wants(e.trySave(good, "", large), sandbox.ErrInvalid)
	equal(e, "documents", must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{})).Documents, 0)
}

// testDocumentsLarge saves the largest document, and a version of it.
func testDocumentsLarge(e *env) {
	if raceEnabled {
		e.Skip("one goroutine after the other handles each byte")
	}
	rnd := rand.New(rand.NewPCG(testseed.Of(e.T), 11))
	large := make([]byte, api.MaxDocument)
	for i := range large {
		large[i] = "0123456789abcdef"[rnd.IntN(16)]
	}
	large[0], large[len(large)-1] = '"', '"'
	at := documents("s", "a")
	e.save(at, "", string(large))
	before := must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{})).Packs
	next := at
	next.ID = newID(e)
	large[len(large)/2] ^= 1
	e.save(next, "", string(large))
	var got bytes.Buffer
	if err := e.api.ReadDocument(e.Context(), next, func(d sandbox.Document) (io.Writer, error) {
		equal(e, "size", d.Size, int64(len(large)))
		return &got, nil
	}); err != nil {
		e.Fatal(err)
	}
	equal(e, "contents are the same", bytes.Equal(got.Bytes(), large), true)
	added := must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{})).Packs - before
	equal(e, fmt.Sprintf("a version takes little: %d bytes", added), added < 4<<20, true)
}

// testDocumentsTied ties documents to snapshots, and lets those go in every way.
func testDocumentsTied(e *env) {
	e.create("w", "")
	first, second := e.snapshot("w", "first"), e.snapshot("w", "second")
	latest, old := documents("s", "a"), documents("s", "a")
	old.ID = newID(e)
	e.save(latest, "first", `"one"`)
	e.save(old, first.ID, `"one"`)
	e.wants(e.trySave(old, second.ID, `"one"`), sandbox.ErrConflict, "tied")
	e.save(documents("t", "b"), first.Ref.String(), `"two"`)
	tied := func(snapshot, agent string) (all []string) {
		e.Helper()
		r := sandbox.ListDocumentsRequest{Snapshot: snapshot, Limit: 100}
		r.AgentSession = agent
		for _, d := range must[sandbox.DocumentPage](e)(e.api.ListDocuments(e.Context(), r)).Documents {
			equal(e, "tied to", d.Snapshot, first.ID)
			all = append(all, d.AgentSession+"/"+d.Kind+"/"+d.Scope+"/"+d.ID)
		}
		return all
	}
	all := []string{"s/agent/a/" + old.ID, "s/agent/a/", "t/agent/b/"}
	equal(e, "tied", fmt.Sprint(tied("w:first", "")), fmt.Sprint(all))
	equal(e, "tied in one session", fmt.Sprint(tied(first.ID, "t")), fmt.Sprint(all[2:]))
	st := must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{Ref: first.ID}))
	equal(e, "documents of the snapshot", st.Documents, 3)
	equal(e, "they are its own", st.Unique > 0, true)

	e.save(latest, "", `"untied"`)
	equal(e, "tied", fmt.Sprint(tied(first.ID, "")), fmt.Sprint([]string{all[0], all[2]}))
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: first.ID}); err != nil {
		e.Fatal(err)
	}
	_, err := e.api.LoadDocument(e.Context(), old)
	e.wants(err, sandbox.ErrNotFound)
	e.loaded(latest, `"untied"`)
	e.wants(e.trySave(latest, first.ID, `1`), sandbox.ErrNotFound)

	e.save(old, second.ID, `"pruned"`)
	e.snapshot("w", "third") // at which the workspace is
	must[sandbox.PruneResult](e)(e.api.Prune(e.Context(), sandbox.PruneRequest{KeepLast: 1}))
	_, err = e.api.LoadDocument(e.Context(), old)
	e.wants(err, sandbox.ErrNotFound)

	var s sandbox.Snapshot
	for ttl := 100 * time.Millisecond; ; ttl *= 2 { // on a slow machine it has passed
		s = must[sandbox.Snapshot](e)(e.api.Snapshot(e.Context(), sandbox.SnapshotRequest{Workspace: "w", TTL: ttl}))
		if e.trySave(old, s.ID, `"expired"`) == nil {
			break
		}
	}
	time.Sleep(time.Until(*s.ExpiresAt) + 10*time.Millisecond)
	must[sandbox.GCResult](e)(e.api.GC(e.Context(), sandbox.GCRequest{}))
	_, err = e.api.LoadDocument(e.Context(), old)
	e.wants(err, sandbox.ErrNotFound)
	e.loaded(latest, `"untied"`)
	e.sound()
}

// testDocumentsBounded ties more documents to a snapshot than it takes.
func testDocumentsBounded(e *env) {
	e.create("w", "")
	s := e.snapshot("w", "")
	at := documents("s", "a")
	for range api.MaxTied {
		at.ID = newID(e)
		e.save(at, s.ID, `0`)
	}
	at.ID = newID(e)
	e.wants(e.trySave(at, s.ID, `0`), sandbox.ErrConflict, fmt.Sprint(api.MaxTied))
	e.save(at, "", `0`)
	if err := e.api.Delete(e.Context(), sandbox.RefRequest{Ref: s.ID}); err != nil {
		e.Fatal(err)
	}
	ids, _ := e.documentIDs(sandbox.ListDocumentsRequest{DocumentRequest: documents("s", "a"), Limit: 1000})
	equal(e, "left", fmt.Sprint(ids), fmt.Sprint([]string{at.ID}))
}

// testDocumentsOfOthers uses what another session has.
func testDocumentsOfOthers(e *env) {
	own := documents("s", "a")
	own.Session = "own"
	e.save(own, "", `"own"`)
	other := documents("s", "a")
	other.Session = "other"
	_, err := e.api.LoadDocument(e.Context(), other)
	e.wants(err, sandbox.ErrNotFound) // the name is its own
	e.save(other, "", `"other"`)
	e.loaded(own, `"own"`)
	foreign := other
	foreign.Owner = "own"
	_, err = e.api.LoadDocument(e.Context(), foreign)
	e.wants(err, sandbox.ErrRefused, "own")
	e.wants(e.trySave(foreign, "", `1`), sandbox.ErrRefused)
	e.wants(e.api.DeleteDocument(e.Context(), foreign), sandbox.ErrRefused)
	e.wants(e.api.DeleteAgentSession(e.Context(), foreign.AgentSessionRequest), sandbox.ErrRefused)
	_, err = e.api.ListDocuments(e.Context(), sandbox.ListDocumentsRequest{DocumentRequest: foreign, Limit: 1})
	e.wants(err, sandbox.ErrRefused)
	foreign.AllowCrossSession = true
	e.loaded(foreign, `"own"`)
	e.save(foreign, "", `"changed"`)
	e.loaded(own, `"changed"`)

	audited := func(session string) (details []string) {
		e.Helper()
		r := sandbox.EventsRequest{}
		r.Session = session
		if err := e.api.Events(e.Context(), r, func(ev sandbox.Event) error {
			if ev.Kind == sandbox.EventCrossSession && ev.Owner == "own" && ev.Level == "warn" && ev.Session == "other" {
				what, _, _ := strings.Cut(ev.Detail, ":")
				details = append(details, what)
			}
			return nil
		}); err != nil {
			e.Fatal(err)
		}
		return slices.Compact(details)
	}
	want := []string{"load document of agent session s", "save document of agent session s"}
	equal(e, "what the owner sees", fmt.Sprint(audited("own")), fmt.Sprint(want))
	equal(e, "what others see", len(audited("other")), 0)

	e.create("w", "")
	s := e.snapshot("w", "")
	e.wants(e.trySave(own, s.ID, `1`), sandbox.ErrRefused)
	equal(e, "documents", must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{
		Access: sandbox.Access{Session: "own"}, OfSession: true,
	})).Documents, 1)
}

// testDocumentsGrow saves versions of a conversation that grows: each takes about what is new in it, and all come back.
func testDocumentsGrow(e *env) {
	rnd := rand.New(rand.NewPCG(testseed.Of(e.T), 12))
	at := documents("s", "a")
	messages, versions, ids := []string{}, []string{}, []string{}
	for range 60 {
		text := make([]byte, 700)
		for i := range text {
			text[i] = "abcdefghijklmnopqrstuvwxyz ."[rnd.IntN(28)]
		}
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":[{"text":%q}]}`, text))
		version := fmt.Sprintf(`{"createdAt":%d,"data":{"messages":[%s]}}`, len(versions), strings.Join(messages, ","))
		versions = append(versions, version)
		e.save(at, "", version)
		one := at
		one.ID = newID(e)
		ids = append(ids, one.ID)
		e.save(one, "", version)
	}
	st := must[sandbox.Stats](e)(e.api.Stats(e.Context(), sandbox.StatsRequest{}))
	equal(e, "documents", st.Documents, 61)
	equal(e, fmt.Sprintf("stored: %d of %d bytes", st.Stored, st.Logical), st.Stored < 60*1000, true)
	e.reopen(false)
	for i, id := range ids {
		at.ID = id
		e.loaded(at, versions[i])
	}
	for _, id := range ids[:len(ids)-1] {
		at.ID = id
		if err := e.api.DeleteDocument(e.Context(), at); err != nil {
			e.Fatal(err)
		}
	}
	must[sandbox.GCResult](e)(e.api.GC(e.Context(), sandbox.GCRequest{Optimize: true, Full: true}))
	at.ID = ids[len(ids)-1]
	e.loaded(at, versions[len(versions)-1])
	e.sound()
}
