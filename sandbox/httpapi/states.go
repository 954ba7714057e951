package httpapi

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/statehttp"
)

// addStates puts the storage of agents' sessions into the document. Package statehttp handles it.
func (s *Server) addStates() {
	document := s.api.OpenAPI()
	content := func(v any) map[string]*huma.MediaType {
		schema := &huma.Schema{Description: "any JSON"}
		if _, ok := v.(statehttp.Contents); !ok {
			schema = document.Components.Schemas.Schema(reflect.TypeOf(v), true, "")
		}
		return map[string]*huma.MediaType{"application/json": {Schema: schema}}
	}
	failed := &huma.Schema{
		Type: huma.TypeObject, Required: []string{"error"},
		Properties: map[string]*huma.Schema{"error": document.Components.Schemas.Schema(reflect.TypeFor[wire.Error](), true, "")},
	}
	text := &huma.Schema{Type: huma.TypeString}
	for _, o := range statehttp.Operations() {
		op := huma.Operation{
			OperationID: strings.ReplaceAll(o.ID, " ", "-"), Method: o.Method, Path: o.Path, Tags: []string{"agents"},
			Summary: strings.ToUpper(o.ID[:1]) + o.ID[1:], Security: []map[string][]string{{"bearerAuth": {}}},
			Extensions: map[string]any{"x-scope": string(o.Scope)}, Responses: map[string]*huma.Response{},
		}
		for part := range strings.SplitSeq(o.Path, "/") {
			if name := strings.Trim(part, "{}"); name != part {
				op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "path", Required: true, Schema: text})
			}
		}
		for _, p := range append(o.Query, statehttp.CommonQuery()...) {
			op.Parameters = append(op.Parameters, &huma.Param{Name: p.Name, In: "query", Description: p.Meaning, Schema: text})
		}
		if o.Body != nil {
			op.RequestBody = &huma.RequestBody{Required: true, Content: content(o.Body)}
		}
		if o.Result != nil {
			op.Responses["200"] = &huma.Response{Description: http.StatusText(http.StatusOK), Content: content(o.Result)}
		} else {
			op.Responses["204"] = &huma.Response{Description: http.StatusText(http.StatusNoContent)}
		}
		op.Responses["default"] = &huma.Response{
			Description: "Error", Content: map[string]*huma.MediaType{"application/json": {Schema: failed}},
		}
		document.AddOperation(&op)
	}
}
