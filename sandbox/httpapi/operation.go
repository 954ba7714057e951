package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// operation is one call: its route, and what it needs.
type operation struct {
	method, path string // below /api/v1
	id           string // its name in the document
	summary      string
	tag          string
	scope        api.Scope
	status       int // of success; 0: 200
}

// maxRequest bounds the JSON of a request, in bytes.
const maxRequest = 1 << 20

// statuses are those of errors that any call may have.
var statuses = []int{400, 401, 403, 404, 409, 429, 500, 503}

func (o operation) huma() huma.Operation {
	status := o.status
	if status == 0 {
		status = http.StatusOK
	}
	return huma.Operation{
		OperationID: o.id, Method: o.method, Path: "/api/v1" + o.path, Summary: o.summary, Tags: []string{o.tag},
		DefaultStatus: status, MaxBodyBytes: maxRequest, Errors: append([]int{}, statuses...),
		Security: []map[string][]string{{"bearerAuth": {}}}, Extensions: map[string]any{"x-scope": string(o.scope)},
	}
}

// output is the answer of a call.
type output[T any] struct {
	Body Envelope[T]
}

// add registers a call: a function of who asks and of the decoded request.
func add[In, Out any](s *Server, o operation, fn func(ctx context.Context, who api.Access, in *In) (Out, error)) {
	huma.Register(s.api, o.huma(), func(ctx context.Context, in *In) (*output[Out], error) {
		by := caller.From(ctx)
		if err := by.Need(o.id, o.scope); err != nil {
			return nil, failure(err)
		}
		out, err := fn(ctx, by.Access(), in)
		if err != nil {
			return nil, failure(told(ctx, o.id, err))
		}
		return &output[Out]{Body: Envelope[Out]{Success: true, Data: out}}, nil
	})
}

// stream registers a call that reads its body or writes its answer itself, once it has been admitted. What it returns is
// sent if it has written nothing yet. What its answer and its body look like is in doc.
func stream[In any](
	s *Server, o operation, doc func(huma.API, *huma.Operation),
	fn func(who api.Access, in *In, w http.ResponseWriter, r *http.Request) error,
) {
	op := o.huma()
	doc(s.api, &op)
	huma.Register(s.api, op, func(ctx context.Context, in *In) (*huma.StreamResponse, error) {
		by := caller.From(ctx)
		if err := by.Need(o.id, o.scope); err != nil {
			return nil, failure(err)
		}
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			begun := &beginning{ResponseWriter: w}
			if err := fn(by.Access(), in, begun, r); err != nil {
				err = told(r.Context(), o.id, err)
				if begun.begun {
					panic(http.ErrAbortHandler) // the client sees that the answer is cut off
				}
				writeFailure(w, err)
			}
		}}, nil
	})
}

// beginning knows whether an answer has begun.
type beginning struct {
	http.ResponseWriter

	begun bool
}

// WriteHeader implements http.ResponseWriter.
func (b *beginning) WriteHeader(status int) {
	b.begun = true
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *beginning) Write(p []byte) (int, error) {
	b.begun = true
	return b.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (b *beginning) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// wantsJSON reports whether a request asks for JSON by a header.
func wantsJSON(r *http.Request) bool {
	for _, key := range []string{"Accept", "Content-Type"} {
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(r.Header.Get(key))), "application/json") {
			return true
		}
	}
	return false
}

// byID is a request that names a sandbox or volume in its path, and nothing else.
type byID struct {
	ID string `path:"id"`
}

// bySnapshot names a snapshot in its path.
type bySnapshot struct {
	Snapshot string `path:"snapshot_id"`
}
