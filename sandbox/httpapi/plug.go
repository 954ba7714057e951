package httpapi

import (
	"net/http"
	"strings"

	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/daemon"
)

// Services are what a daemon serves of the adapter: everything below /api/v1, and the other paths of published clients.
func (s *Server) Services() []daemon.Service {
	patterns := []string{"/api/v1/"}
	for _, p := range notHere {
		if !strings.HasPrefix(p.path, patterns[0]) {
			patterns = append(patterns, p.path, p.path+"/")
		}
	}
	all := make([]daemon.Service, 0, len(patterns))
	for _, pattern := range patterns {
		all = append(all, daemon.Service{Pattern: pattern, Handler: s, Lane: laneOf, Refuse: refuse})
	}
	return all
}

// laneOf is the kind of a request, by its path alone.
func laneOf(r *http.Request) daemon.Lane {
	switch ends := func(with string) bool { return strings.HasSuffix(r.URL.Path, with) }; {
	case ends("/files/watch"):
		return daemon.FollowLane
	case ends("/files"), ends("/files/archive"), ends("/files/list"):
		return daemon.LongLane
	}
	return daemon.ShortLane
}

// refuse answers a request that does not get to the adapter, in its form of errors: one without a token, or for which there
// is no room. Headers are set already.
func refuse(w http.ResponseWriter, _ *http.Request, status int, e *wire.Error) {
	writeFailure(w, fail(status, e.Class, e.Message))
}
