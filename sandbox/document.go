package sandbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/zeebo/blake3"

	"snapfs/chunkstore"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// largeDocument is from how many bytes on a document that is saved waits for a place.
const largeDocument = 1 << 20

// SaveDocument implements [API]. Blanks between the values of a document are not stored.
func (h *Home) SaveDocument(ctx context.Context, r SaveDocumentRequest) (Document, error) {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return Document{}, err
	}
	defer end()
	body, err := documentBody(r)
	if err != nil {
		return Document{}, err
	}
	k, err := h.useDocument(ctx, r.DocumentRequest, "save document")
	if err != nil {
		return Document{}, err
	}
	sum := blake3.Sum256(body)
	d := catalog.Document{Size: int64(len(body)), Sum: hex.EncodeToString(sum[:])}
	if r.Snapshot != "" {
		s, err := h.useSnapshot(ctx, r.Access, r.Snapshot, "tie a document")
		if err != nil {
			return Document{}, err
		}
		d.Snapshot = s.ID
	}
	before, err := h.catalog.Document(ctx, k)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Document{}, err
	}
	if err == nil && k.Immutable() {
		return describeDocument(k, before), before.Same(k, d)
	}
	if err := h.roomInHome(ctx); err != nil {
		return Document{}, err
	}
	if len(body) >= largeDocument {
		leave, err := h.working.documents.Enter(ctx, k.Owner, nil)
		if err != nil {
			return Document{}, err
		}
		defer leave()
	}
	if err := h.storeDocument(ctx, k, &d, body); err != nil {
		return Document{}, err
	}
	return describeDocument(k, d), nil
}

// documentBody checks a request, and gives the document as it is stored.
func documentBody(r SaveDocumentRequest) ([]byte, error) {
	if err := r.Valid(); err != nil {
		return nil, err
	}
	if r.Manifest && r.Snapshot != "" {
		return nil, fmt.Errorf("%w: the manifest of a scope is not tied to a snapshot", ErrInvalid)
	}
	if !utf8.Valid(r.Body) {
		return nil, fmt.Errorf("%w: the document is not UTF-8", ErrInvalid)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, r.Body); err != nil {
		return nil, fmt.Errorf("%w: the document is not JSON: %w", ErrInvalid, err)
	}
	if b.Len() > api.MaxDocument {
		return nil, fmt.Errorf("%w: the document has %d bytes, and may have %d", ErrInvalid, b.Len(), api.MaxDocument)
	}
	return b.Bytes(), nil
}

// storeDocument stores the contents of a document, as a version of what it resembles, together with its record, which it
// completes.
func (h *Home) storeDocument(ctx context.Context, k catalog.DocumentKey, d *catalog.Document, body []byte) error {
	hint := chunkstore.Hint{Path: k.Scope + ".json", Size: d.Size}
	switch m, ok, err := h.catalog.Resembles(ctx, k); {
	case err != nil:
		return err
	case ok:
		hint.Prev = []chunkstore.Range{{Manifest: m.ID, Len: m.Size}}
	}
	in, err := h.store.NewIngest(ctx, chunkstore.IngestOptions{Kind: chunkstore.KindDocument})
	if err != nil {
		return classify(err)
	}
	defer in.Abort()
	if err := in.Hint(hint); err != nil {
		return classify(err)
	}
	if _, err := in.Write(body); err != nil {
		return classify(err)
	}
	most := catalog.Documents{Count: api.MaxDocuments, Bytes: max(h.limits.Load().Bytes, 0)}
	_, err = in.Commit(ctx, func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		d.Manifest, d.UpdatedAt = m.ID, h.now().UTC()
		return h.catalog.PutDocument(tx, k, *d, most)
	})
	if err != nil {
		return classify(fmt.Errorf("storing a document: %w", err))
	}
	h.points.At("document committed")
	return nil
}

// useDocument finds out whose document is meant, checks that the asker may use it, and audits a crossing.
func (h *Home) useDocument(ctx context.Context, r DocumentRequest, what string) (catalog.DocumentKey, error) {
	k := catalog.DocumentKey{Agent: r.AgentSession, Kind: r.Kind, Scope: r.Scope, Name: r.ID}
	switch {
	case r.Manifest:
		k.Name = catalog.ManifestDocument
	case r.ID == "":
		k.Name = catalog.LatestDocument
	}
	var err error
	k.Owner, err = h.useAgentSession(ctx, r.AgentSessionRequest, what)
	return k, err
}

// useAgentSession finds out whose agents' sessions are meant, checks that the asker may use them, and audits a crossing.
func (h *Home) useAgentSession(ctx context.Context, r AgentSessionRequest, what string) (owner string, err error) {
	who, err := newAsker(ctx, r.Access)
	if err != nil {
		return "", err
	}
	if owner, err = r.OwnerID(); err != nil {
		return "", err
	}
	if !who.may(owner) {
		return "", refused("what agents have saved in session", owner)
	}
	return owner, h.audit(ctx, who.session, owner, "", "", what+" of agent session "+r.AgentSession)
}

func describeDocument(k catalog.DocumentKey, d catalog.Document) Document {
	described := Document{
		AgentSession: k.Agent, Kind: k.Kind, Scope: k.Scope, Manifest: k.Name == catalog.ManifestDocument,
		Size: d.Size, Snapshot: d.Snapshot, UpdatedAt: d.UpdatedAt,
	}
	if k.Immutable() {
		described.ID = k.Name
	}
	return described
}

// LoadDocument implements [API].
func (h *Home) LoadDocument(ctx context.Context, r DocumentRequest) (d Document, err error) {
	var body bytes.Buffer
	err = h.ReadDocument(ctx, r, func(found Document) (io.Writer, error) {
		d = found
		body.Grow(int(d.Size))
		return &body, nil
	})
	if err != nil {
		return Document{}, err
	}
	d.Body = body.Bytes()
	return d, nil
}

// ReadDocument implements [API].
func (h *Home) ReadDocument(ctx context.Context, r DocumentRequest, to func(Document) (io.Writer, error)) error {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := r.Valid(); err != nil {
		return err
	}
	k, err := h.useDocument(ctx, r, "load document")
	if err != nil {
		return err
	}
	d, in, err := h.openDocument(ctx, k)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // nothing is written
	w, err := to(describeDocument(k, d))
	if err != nil {
		return err
	}
	_, err = in.WriteTo(writerUntil{ctx, w})
	return classify(err)
}

// openDocument opens the contents of a document. One that is replaced meanwhile is looked for again.
func (h *Home) openDocument(ctx context.Context, k catalog.DocumentKey) (catalog.Document, *chunkstore.Reader, error) {
	for before := (catalog.Document{}); ; {
		d, err := h.catalog.Document(ctx, k)
		if err != nil {
			return d, nil, err
		}
		in, err := h.store.OpenManifest(ctx, d.Manifest)
		if errors.Is(err, chunkstore.ErrNotFound) && d.Manifest != before.Manifest {
			before = d
			continue
		}
		return d, in, classify(err)
	}
}

// writerUntil is a writer until ctx ends.
type writerUntil struct {
	ctx context.Context
	w   io.Writer
}

// Write implements io.Writer.
func (w writerUntil) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

// DeleteDocument implements [API].
func (h *Home) DeleteDocument(ctx context.Context, r DocumentRequest) error {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := r.Valid(); err != nil {
		return err
	}
	k, err := h.useDocument(ctx, r, "delete document")
	if err != nil {
		return err
	}
	return h.catalog.DropDocument(ctx, k)
}

// DeleteAgentSession implements [API].
func (h *Home) DeleteAgentSession(ctx context.Context, r AgentSessionRequest) error {
	ctx, end, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := r.Valid(); err != nil {
		return err
	}
	owner, err := h.useAgentSession(ctx, r, "delete documents")
	if err != nil {
		return err
	}
	return h.catalog.DropAgentSession(ctx, owner, r.AgentSession)
}

// ListDocuments implements [API].
func (h *Home) ListDocuments(ctx context.Context, r ListDocumentsRequest) (DocumentPage, error) {
	page := DocumentPage{Documents: []Document{}}
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return page, err
	}
	defer end()
	if err := r.Valid(); err != nil {
		return page, err
	}
	k, err := h.useDocument(ctx, r.DocumentRequest, "list documents")
	if err != nil {
		return page, err
	}
	most := min(r.Limit, api.MaxDocumentPage)
	var list []catalog.KeyedDocument
	if r.Snapshot != "" {
		list, err = h.tiedDocuments(ctx, r, k.Owner)
		if len(list) > max(most, 0) {
			list, page.More = list[:max(most, 0)], most > 0
		}
	} else if most > 0 {
		k.Name = r.After
		list, page.More, err = h.catalog.ListDocuments(ctx, k, most)
	}
	for _, d := range list {
		page.Documents = append(page.Documents, describeDocument(d.DocumentKey, d.Document))
	}
	return page, err
}

// tiedDocuments lists those documents of an owner that are tied to a snapshot.
func (h *Home) tiedDocuments(ctx context.Context, r ListDocumentsRequest, owner string) ([]catalog.KeyedDocument, error) {
	s, err := h.useSnapshot(ctx, r.Access, r.Snapshot, "list its documents")
	if err != nil {
		return nil, err
	}
	all, err := h.catalog.TiedDocuments(ctx, s.ID)
	list := all[:0]
	for _, d := range all {
		if d.Owner == owner && (r.AgentSession == "" || d.Agent == r.AgentSession) {
			list = append(list, d)
		}
	}
	return list, err
}
