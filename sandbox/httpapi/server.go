package httpapi

import (
	"cmp"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// Options say how the adapter asks the service.
type Options struct {
	// Mountpoint is where a workspace is mounted that is not mounted. nil: sandbox.ServiceMountpoint.
	Mountpoint func(workspace string) string
	// MaxFile bounds what a request writes, in bytes. 0: 64 GiB.
	MaxFile int64
	// Log gets what nobody is there to be told. nil: it is dropped.
	Log *slog.Logger
	// Now is the clock; nil: that of the machine.
	Now func() time.Time
}

const (
	// defaultMaxFile is Options.MaxFile.
	defaultMaxFile = 64 << 30
	// requestIDHeader names a request.
	requestIDHeader = "X-Request-Id"
)

// Server is the adapter: an http.Handler for what Services say. Run is its work in
// the background.
type Server struct {
	service Service
	o       Options
	mux     *http.ServeMux
	api     huma.API
	wake    chan struct{} // of capacity 1: an end has changed
}

// New makes the adapter of a service. Nothing runs until its Run.
func New(service Service, o Options) *Server {
	if o.Mountpoint == nil {
		o.Mountpoint = func(workspace string) string { return sandbox.ServiceMountpoint(service.Dir(), workspace) }
	}
	if o.MaxFile == 0 {
		o.MaxFile = defaultMaxFile
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{service: service, o: o, mux: http.NewServeMux(), wake: make(chan struct{}, 1)}
	s.api = humago.New(s.mux, config())
	s.addSandboxes()
	s.addLifecycle()
	s.addRootfs()
	s.addFiles("sandboxes", "sandbox", s.sandbox)
	s.addVolumes()
	s.addFiles("sandboxvolumes", "volume", s.volume)
	s.addArchive()
	s.addTemplates()
	s.addAbsent()
	s.addNative()
	s.addStates()
	s.addDocument()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if w.Header().Get(requestIDHeader) == "" {
		w.Header().Set(requestIDHeader, cmp.Or(caller.From(r.Context()).ID(), rand.Text()))
	}
	h, pattern := s.mux.Handler(r)
	if pattern == "" {
		refuseRoute(w, r, h)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// refuseRoute answers for a path that is not there, or not with this method: what the mux says of it, in JSON.
func refuseRoute(w http.ResponseWriter, r *http.Request, h http.Handler) {
	said := verdict{header: http.Header{}, status: http.StatusNotFound}
	h.ServeHTTP(&said, r)
	if said.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", said.header.Get("Allow"))
		writeFailure(w, fail(said.status, codeMethod, r.Method+" is not a method of "+api.Quoted(r.URL.Path)))
		return
	}
	writeFailure(w, fail(http.StatusNotFound, api.ClassOf(api.ErrNotFound).Word, "there is no "+api.Quoted(r.URL.Path)))
}

// verdict is a ResponseWriter that keeps the status alone.
type verdict struct {
	header http.Header
	status int
}

func (v *verdict) Header() http.Header         { return v.header }
func (v *verdict) WriteHeader(status int)      { v.status = status }
func (v *verdict) Write(p []byte) (int, error) { return len(p), nil }
