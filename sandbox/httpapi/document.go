package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// config is what the library is to do: JSON alone, no pages of its own, and the document without links to it.
func config() huma.Config {
	c := huma.DefaultConfig("snapfs", "1")
	c.Info.Description = "Sandboxes with named snapshots of their trees, volumes, templates and files. The JSON is that of " +
		"the published clients of sandbox services. What no file system has (networks, credentials, processes, " +
		"services, teams, quotas, usage) answers 501 with the body of an error."
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"bearerAuth": {Type: "http", Scheme: "bearer", Description: "a token made by 'snapfs token create'"},
	}
	return c
}

// Document is the description of the API, in YAML.
func (s *Server) Document() ([]byte, error) { return s.api.OpenAPI().YAML() }

func (s *Server) addDocument() {
	serve := func(path, kind string, make func() ([]byte, error)) {
		s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			text, err := make()
			if err != nil {
				writeFailure(w, err)
				return
			}
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write(text) // the client is gone
		})
	}
	serve("/api/v1/openapi.yaml", "application/yaml", s.Document)
	serve("/api/v1/openapi.json", "application/json", s.api.OpenAPI().MarshalJSON)
}
