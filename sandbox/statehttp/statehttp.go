package statehttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/internal/places"
)

// Patterns are what the handler answers, in the form of [http.ServeMux].
func Patterns() []string { return []string{sessionsPath + "/", documentsPath} }

const (
	sessionsPath  = "/api/v1/agent-sessions"
	documentsPath = "/api/v1/agent-documents"
	scopePath     = sessionsPath + "/{agent}/scopes/{kind}/{scope}"
)

// largeAtOnce is how many documents of more than largeBody bytes are taken at a time.
const largeAtOnce = 4

// server is the handler.
type server struct {
	api   api.Documents
	large *places.Places
}

// New makes the handler of a service; who calls is in the contexts of requests, see [caller.From]. Safe for concurrent use.
func New(a api.Documents) http.Handler {
	s := &server{api: a, large: places.New(largeAtOnce)}
	mux := http.NewServeMux()
	paths := map[string]methods{}
	for _, o := range Operations() {
		if paths[o.Path] == nil {
			paths[o.Path] = methods{}
		}
		paths[o.Path][o.Method] = o
	}
	for path, all := range paths {
		s.route(mux, path, all)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, fmt.Errorf("%w: route %s", api.ErrNotFound, api.Quoted(r.URL.Path)))
	})
	return mux
}

// methods are the calls of a path.
type methods map[string]Operation

// exchange is one request with its answer.
type exchange struct {
	w      http.ResponseWriter
	r      *http.Request
	caller *caller.Caller
	call   Operation
	query  url.Values // of which nothing was taken yet
	access api.AgentSessionRequest
}

// route has the methods of a path answered.
func (s *server) route(mux *http.ServeMux, path string, all methods) {
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		o, ok := all[r.Method]
		if !ok {
			for m := range all {
				w.Header().Add("Allow", m)
			}
			refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("%w: method %s", api.ErrInvalid, api.Quoted(r.Method)))
			return
		}
		x := &exchange{w: w, r: r, caller: caller.From(r.Context()), call: o}
		err := x.enter()
		if err == nil {
			err = x.caller.Tell(o.ID, o.run(s, x))
		}
		if err != nil {
			fail(w, err)
		}
	})
}

// enter finds out who asks, and whether it may.
func (x *exchange) enter() (err error) {
	if err := x.caller.Need(x.call.ID, x.call.Scope); err != nil {
		return err
	}
	if x.query, err = url.ParseQuery(x.r.URL.RawQuery); err != nil {
		return fmt.Errorf("%w: query: %w", api.ErrInvalid, err)
	}
	x.access.AgentSession = x.r.PathValue("agent")
	x.access.Access, x.access.Owner = x.caller.Access(), x.take("owner")
	if session := x.take("session"); session != "" {
		x.access.Session = session
	}
	if text := x.take("allowCrossSession"); text != "" {
		if x.access.AllowCrossSession, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%w: allowCrossSession is true or false", api.ErrInvalid)
		}
	}
	return nil
}

// Large reports whether a request moves so much that it lasts.
func Large(r *http.Request) bool { return r.ContentLength < 0 || r.ContentLength > largeBody }

// Refuse answers a request that does not get to the handler.
func Refuse(w http.ResponseWriter, _ *http.Request, status int, e *wire.Error) { refuse(w, status, e) }

// take gives a parameter of the query, "" if it is not there, or not one of the call.
func (x *exchange) take(name string) string {
	is := func(p Parameter) bool { return p.Name == name }
	if !slices.ContainsFunc(x.call.Query, is) && !slices.ContainsFunc(CommonQuery(), is) {
		return ""
	}
	value := x.query.Get(name)
	if len(x.query[name]) == 1 {
		delete(x.query, name) // one that is there twice is not known
	}
	return value
}

// taken refuses parameters that nobody has taken.
func (x *exchange) taken() error {
	for name := range x.query {
		return fmt.Errorf("%w: parameter %s is not known here, or there twice", api.ErrInvalid, api.Quoted(name))
	}
	return nil
}

// document is what the path names; its id is "" for the latest.
func (x *exchange) document() api.DocumentRequest {
	d := api.DocumentRequest{
		AgentSessionRequest: x.access, Kind: x.r.PathValue("kind"), Scope: x.r.PathValue("scope"), ID: x.r.PathValue("id"),
	}
	if d.ID == latest {
		d.ID = ""
	}
	return d
}

// latest is the id of the latest document in paths.
const latest = "latest"

// answer sends a JSON answer.
func answer(w http.ResponseWriter, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client is gone
	return nil
}

// fail answers with an error. One that comes when a part of the answer has been sent breaks it off.
func fail(w http.ResponseWriter, err error) {
	if begun := (begunError{}); errors.As(err, &begun) {
		panic(http.ErrAbortHandler)
	}
	status := api.ClassOf(err).Status
	var long *http.MaxBytesError
	switch e := (mediaTypeError{}); {
	case errors.As(err, &long):
		status = http.StatusRequestEntityTooLarge
		err = fmt.Errorf("%w: the document is larger than %d bytes", api.ErrInvalid, api.MaxDocument)
	case errors.As(err, &e):
		status = http.StatusUnsupportedMediaType
	}
	refuse(w, status, err)
}

// refuse answers with an error and a status.
func refuse(w http.ResponseWriter, status int, err error) {
	if status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
	_ = answer(w, status, map[string]*wire.Error{"error": wireError(err)}) // it can be encoded
}

// wireError is the form in which an error travels.
func wireError(err error) *wire.Error {
	if e := (*wire.Error)(nil); errors.As(err, &e) {
		return e
	}
	return wire.NewError(err)
}

// begunError is for an answer that is sent in part.
type begunError struct{ error }

func (e begunError) Unwrap() error { return e.error }

// mediaTypeError is for a body that does not say that it is JSON.
type mediaTypeError struct{ error }

func (e mediaTypeError) Unwrap() error { return e.error }

// isJSON reports whether a media type is that of JSON.
func isJSON(mediaType string) bool {
	return slices.Contains([]string{"", "application/json", "text/json"}, mediaType)
}
