package statehttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/pace"
)

const (
	// snapshotHeader tells to which snapshot of a workspace a document is tied.
	snapshotHeader = "Snapfs-Snapshot"
	// largeBody is from how many bytes on a body waits for a place before it is read.
	largeBody = 1 << 20
	// steadyBytes must come of such a body within each steadyWait: it has its place meanwhile.
	steadyBytes = 8 << 20
	steadyWait  = 30 * time.Second
	// maxBody bounds a body. Blanks are not stored, and do not count for much.
	maxBody = api.MaxDocument + 1<<20
	// schemaVersion is that of a manifest that is missing.
	schemaVersion = "1.0"
)

// list answers with the ids of immutable documents.
func (s *server) list(x *exchange) error {
	r := api.ListDocumentsRequest{
		DocumentRequest: x.document(), After: strings.ToLower(x.take("startAfter")), Limit: api.MaxDocumentPage,
	}
	if text := x.take("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%w: limit %s is no number", api.ErrInvalid, api.Quoted(text))
		}
		r.Limit = n
	}
	if err := x.taken(); err != nil {
		return err
	}
	page, err := s.api.ListDocuments(x.r.Context(), r)
	if err != nil {
		return err
	}
	ids := make([]string, 0, len(page.Documents))
	for _, d := range page.Documents {
		ids = append(ids, d.ID)
	}
	return answer(x.w, http.StatusOK, IDPage{ids, page.More})
}

// tied answers with the documents that are tied to a snapshot.
func (s *server) tied(x *exchange) error {
	r := api.ListDocumentsRequest{Snapshot: x.take("snapshot"), Limit: api.MaxDocumentPage}
	r.AgentSessionRequest = x.access
	r.AgentSession = x.take("agentSession")
	if err := x.taken(); err != nil {
		return err
	}
	if r.Snapshot == "" {
		return fmt.Errorf("%w: the parameter snapshot is missing", api.ErrInvalid)
	}
	page, err := s.api.ListDocuments(x.r.Context(), r)
	if err != nil {
		return err
	}
	return answer(x.w, http.StatusOK, page)
}

// load answers with a document, or null.
func (s *server) load(x *exchange) error {
	if err := x.taken(); err != nil {
		return err
	}
	return s.send(x, x.document(), nil)
}

// send answers with a document, or with what stands for a missing one.
func (s *server) send(x *exchange, d api.DocumentRequest, missing any) error {
	begun := false
	err := s.api.ReadDocument(x.r.Context(), d, func(d api.Document) (io.Writer, error) {
		h := x.w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Content-Length", strconv.FormatInt(d.Size, 10))
		h.Set("Last-Modified", d.UpdatedAt.UTC().Format(http.TimeFormat))
		if d.Snapshot != "" {
			h.Set(snapshotHeader, d.Snapshot)
		}
		begun = true
		return x.w, nil
	})
	switch {
	case err == nil:
		return nil
	case begun:
		return begunError{err}
	case errors.Is(err, api.ErrNotFound):
		return answer(x.w, http.StatusOK, missing)
	}
	return err
}

// save stores a document.
func (s *server) save(x *exchange) error {
	r := api.SaveDocumentRequest{DocumentRequest: x.document(), Snapshot: x.take("snapshot")}
	if err := x.taken(); err != nil {
		return err
	}
	if err := r.Valid(); err != nil {
		return err // before the body is read
	}
	body, leave, err := s.body(x)
	if err != nil {
		return err
	}
	defer leave()
	r.Body = body
	d, err := s.api.SaveDocument(x.r.Context(), r)
	if err != nil {
		return err
	}
	return answer(x.w, http.StatusOK, d)
}

// body reads the body of a request. What it holds waits for a place if it is large, and has it until leave is called.
func (s *server) body(x *exchange) (body []byte, leave func(), err error) {
	leave = func() {}
	mediaType, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if x.r.Header.Get("Content-Type") == "" {
		mediaType, err = "", nil
	}
	if err != nil || !isJSON(mediaType) {
		return nil, leave, mediaTypeError{fmt.Errorf("%w: the body of a document is application/json", api.ErrInvalid)}
	}
	from := io.Reader(http.MaxBytesReader(x.w, x.r.Body, maxBody))
	if n := x.r.ContentLength; n > maxBody {
		return nil, leave, &http.MaxBytesError{Limit: maxBody}
	} else if Large(x.r) {
		session, err := x.access.SessionID()
		if err != nil {
			return nil, leave, err
		}
		if leave, err = s.large.Enter(x.r.Context(), session, nil); err != nil {
			return nil, func() {}, err
		}
		from = pace.NewReader(from, pace.New(steadyBytes, steadyWait))
	}
	body, err = io.ReadAll(from)
	if err != nil {
		leave()
		if long := (*http.MaxBytesError)(nil); errors.As(err, &long) {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("%w: the body was cut off: %w", api.ErrInvalid, err)
	}
	return body, leave, nil
}

// remove deletes a document.
func (s *server) remove(x *exchange) error {
	if err := x.taken(); err != nil {
		return err
	}
	if err := s.api.DeleteDocument(x.r.Context(), x.document()); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// removeAll deletes the documents of an agent's session.
func (s *server) removeAll(x *exchange) error {
	if err := x.taken(); err != nil {
		return err
	}
	if err := s.api.DeleteAgentSession(x.r.Context(), x.access); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// Manifest tells about what is in a scope, in the words of agent frameworks.
type Manifest struct {
	SchemaVersion string    `json:"schemaVersion"`
	UpdatedAt     time.Time `json:"updatedAt"`
}

// loadManifest answers with the manifest of a scope, the default one if none was saved.
func (s *server) loadManifest(x *exchange) error {
	if err := x.taken(); err != nil {
		return err
	}
	d := x.document()
	d.Manifest = true
	return s.send(x, d, Manifest{schemaVersion, time.Now().UTC().Truncate(time.Millisecond)})
}

// saveManifest stores the manifest of a scope.
func (s *server) saveManifest(x *exchange) error {
	if err := x.taken(); err != nil {
		return err
	}
	d := x.document()
	d.Manifest = true
	if err := d.Valid(); err != nil {
		return err
	}
	body, leave, err := s.body(x)
	if err != nil {
		return err
	}
	defer leave()
	var m struct {
		SchemaVersion *string    `json:"schemaVersion"`
		UpdatedAt     *time.Time `json:"updatedAt"`
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return fmt.Errorf("%w: manifest: %w", api.ErrInvalid, err)
	}
	if m.SchemaVersion == nil || *m.SchemaVersion == "" || m.UpdatedAt == nil {
		return fmt.Errorf("%w: a manifest has a schemaVersion and the time updatedAt", api.ErrInvalid)
	}
	saved, err := s.api.SaveDocument(x.r.Context(), api.SaveDocumentRequest{DocumentRequest: d, Body: body})
	if err != nil {
		return err
	}
	return answer(x.w, http.StatusOK, saved)
}
