package httpapi

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// What the document says of calls that read their body or write their answer themselves.

func bytesDoc() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }

// bodyDoc documents a body of bytes.
func bodyDoc(kind string) *huma.RequestBody {
	return &huma.RequestBody{Content: map[string]*huma.MediaType{kind: {Schema: bytesDoc()}}}
}

// jsonOf is the media type of an answer in JSON.
func jsonOf[T any](api huma.API) *huma.MediaType {
	return &huma.MediaType{Schema: api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Envelope[T]](), true, "")}
}

// jsonDoc documents an answer in JSON.
func jsonDoc[T any](api huma.API, op *huma.Operation) {
	op.Responses = map[string]*huma.Response{"200": {
		Description: "OK", Content: map[string]*huma.MediaType{"application/json": jsonOf[T](api)},
	}}
}

func readDoc(api huma.API, op *huma.Operation) {
	op.Description = "With 'application/json' in Accept or Content-Type the answer is JSON with the contents in base64."
	op.Responses = map[string]*huma.Response{"200": {
		Description: "OK", Content: map[string]*huma.MediaType{
			"application/octet-stream": {Schema: bytesDoc()}, "application/json": jsonOf[FileContent](api),
		},
	}}
}

func writeDoc(api huma.API, op *huma.Operation) {
	op.Description = "Others see the old contents or the new ones, whole. Missing directories on the way are made."
	jsonDoc[Written](api, op)
	op.RequestBody = bodyDoc("application/octet-stream")
}

func archiveDoc(api huma.API, op *huma.Operation) {
	jsonDoc[Imported](api, op)
	op.RequestBody = bodyDoc("application/x-tar")
}

func watchDoc(api huma.API, op *huma.Operation) {
	schemas := api.OpenAPI().Components.Schemas
	schemas.Schema(reflect.TypeFor[WatchRequest](), true, "")
	schemas.Schema(reflect.TypeFor[WatchMessage](), true, "")
	op.Description = "The client sends WatchRequest, the service WatchMessage, both as JSON."
	op.Responses = map[string]*huma.Response{"101": {Description: http.StatusText(http.StatusSwitchingProtocols)}}
}
