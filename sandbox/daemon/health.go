package daemon

import (
	"net/http"

	"snapfs/sandbox/api/wire"
)

// Paths that answer without a token.
const (
	pathAlive = "/healthz"
	pathReady = "/readyz"
)

// healthy answers a request that asks how the daemon is, and reports whether it was one.
func (s *server) healthy(x *exchange, r *http.Request) bool {
	if r.URL.Path != pathAlive && r.URL.Path != pathReady {
		return false
	}
	x.route = r.URL.Path
	hurry(x.out)
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		x.out.Header().Set("Allow", "GET, HEAD")
		x.out.refuse(http.StatusMethodNotAllowed, x.wireError(wire.Unavailable("it can be read only")))
		return true
	}
	if r.URL.Path == pathReady && !s.ready() {
		s.refuse(x, r, errStopping)
		return true
	}
	x.out.Header().Set("Content-Type", "application/json")
	_, _ = x.out.Write([]byte(`{"status":"ok"}` + "\n")) // the client is gone
	return true
}

// ready reports whether calls are taken.
func (s *server) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.stopping && !s.settling && s.calls.Err() == nil
}
