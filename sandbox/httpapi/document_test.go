package httpapi_test

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"testing"

	"snapfs/sandbox/httpapi"
)

var write = flag.Bool("write", false, "write docs/openapi.yaml")

// TestDocument: the document that is checked in is the one that the handlers make, which the service serves.
func TestDocument(t *testing.T) {
	const path = "../../docs/openapi.yaml"
	server := httpapi.New(nil, httpapi.Options{})
	want, err := server.Document()
	if err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what the handlers make: 'go test ./sandbox/httpapi -run TestDocument -write' writes it", path)
	}
	r := open(t, httpapi.Options{})
	if served := r.do(http.MethodGet, "/api/v1/openapi.yaml", nil); !bytes.Equal(served.body, want) {
		t.Errorf("served: %d %.200s", served.status, served.body)
	}
	if served := r.do(http.MethodGet, "/api/v1/openapi.json", nil); !bytes.Contains(served.body, []byte("claim-sandbox")) {
		t.Errorf("served as JSON: %d %.200s", served.status, served.body)
	}
}
