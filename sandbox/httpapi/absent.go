package httpapi

import (
	"net/http"
)

// notHere are the calls of the published clients that no file system has, by the paths that lead to them.
var notHere = []struct{ path, what string }{
	{"/api/v1/sandboxes/{id}/network", "networks"},
	{"/api/v1/sandboxes/{id}/services", "services of sandboxes"},
	{"/api/v1/sandboxes/{id}/contexts", "processes"},
	{"/api/v1/sandboxes/{id}/sessions", "processes"},
	{"/api/v1/sandboxes/{id}/observability", "observability of processes"},
	{"/api/v1/sandboxes/{id}/metrics", "metrics of processes"},
	{"/api/v1/credential-sources", "credentials"},
	{"/api/v1/quotas", "quotas"},
	{"/api/v1/usage", "usage"},
	{"/api/v1/registry", "registries of images"},
	{"/api-keys", "API keys ('snapfs token' makes tokens)"},
	{"/auth", "log-ins ('snapfs token' makes tokens)"},
	{"/metadata", "gateways"},
	{"/regions", "regions"},
	{"/teams", "teams"},
	{"/users", "users"},
}

func (s *Server) addAbsent() {
	for _, p := range notHere {
		refuse := func(w http.ResponseWriter, _ *http.Request) { writeFailure(w, absent(p.what)) }
		s.mux.HandleFunc(p.path, refuse)
		s.mux.HandleFunc(p.path+"/{rest...}", refuse)
	}
	s.mux.HandleFunc("PUT /api/v1/templates/{id}", func(w http.ResponseWriter, _ *http.Request) {
		writeFailure(w, absent("changes of a template, which is a snapshot"))
	})
}
