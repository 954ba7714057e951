package httpapi_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/httpapi"
)

// FuzzRequest: whatever is asked has an answer that is no fault of the service, and an error is JSON.
func FuzzRequest(f *testing.F) {
	dir, err := os.MkdirTemp("", "snapfs-rest-fuzz-")
	if err != nil {
		f.Fatal(err)
	}
	home, err := sandbox.Open(f.Context(), filepath.Join(dir, "home"), sandbox.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := home.Close(); err != nil {
			f.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			f.Error(err)
		}
	})
	server := httpapi.New(home, httpapi.Options{MaxFile: 1 << 20})
	ask := func(t testing.TB, method, path, kind string, body []byte) *httptest.ResponseRecorder {
		q, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, bytes.NewReader(body))
		if err != nil || !strings.HasPrefix(q.URL.Path, "/") {
			return nil // no request
		}
		q.Header.Set("Content-Type", kind)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, q)
		return w
	}
	var claim struct{ Data httpapi.Claim }
	var volume struct{ Data httpapi.Volume }
	var snapshot struct{ Data httpapi.RootfsSnapshot }
	made := func(path, body string, into any) {
		w := ask(f, http.MethodPost, path, "application/json", []byte(body))
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != http.StatusCreated {
			f.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	made("/api/v1/sandboxes", `{}`, &claim)
	made("/api/v1/sandboxvolumes", `{}`, &volume)
	made("/api/v1/sandboxes/"+claim.Data.SandboxID+"/snapshots", `{"name":"named"}`, &snapshot)

	names := strings.NewReplacer("{id}", claim.Data.SandboxID, "{volume}", volume.Data.ID, "{snapshot_id}", snapshot.Data.ID)
	for path, methods := range routes(f, server) {
		if strings.Contains(path, "/sandboxvolumes/") {
			path = strings.Replace(path, "{id}", "{volume}", 1)
		}
		for _, method := range methods {
			if method == http.MethodDelete && !strings.HasSuffix(path, "/files") {
				continue // what is to be asked about stays
			}
			f.Add(method, names.Replace(path), "application/json", []byte(`{}`))
			f.Add(method, names.Replace(path)+"?path=%2fa", "application/octet-stream", archive(f))
			f.Add(method, strings.NewReplacer("{", "", "}", "").Replace(path), "", []byte(nil))
		}
	}
	for _, b := range bodies(f, server) {
		path := b.path
		if strings.Contains(path, "/sandboxvolumes/") {
			path = strings.Replace(path, "{id}", "{volume}", 1)
		}
		f.Add(b.method, names.Replace(path), "application/json", b.text)
	}
	for _, body := range []string{
		`{"template":"named","config":{"ttl":1,"hard_ttl":2,"env_vars":{"A":"b"},"auto_resume":null}}`,
		`{"snapshot_id":"` + snapshot.Data.ID + `"}`, `{"config":{"resources":{"memory":"\ud800"}}}`,
		`{"source":"/a","destination":"/b/c"}`, `{"expires_at":"0001-01-01T00:00:00Z"}`, `[`, `null`, "\xff\xfe",
	} {
		f.Add(http.MethodPost, "/api/v1/sandboxes", "application/json", []byte(body))
		f.Add(http.MethodPost, names.Replace("/api/v1/sandboxes/{id}/files/move"), "application/json", []byte(body))
		f.Add(http.MethodPost, names.Replace("/api/v1/sandboxes/{id}/snapshots"), "application/json", []byte(body))
	}
	f.Add(http.MethodPost, names.Replace("/api/v1/sandboxes/{id}/files?path=a&mkdir=perhaps"), "x", []byte("x"))
	f.Add(http.MethodGet, names.Replace("/api/v1/sandboxes/{id}/files?path=..%2f..%2fetc%2fpasswd"), "x", []byte("x"))
	f.Add(http.MethodGet, names.Replace("/api/v1/sandboxes/{id}/files?path=%00"), "x", []byte("x"))
	f.Add("\u00e4", "//", "application/json; charset=\"", []byte(nil))

	f.Fuzz(func(t *testing.T, method, path, kind string, body []byte) {
		w := ask(t, method, path, kind, body)
		if w == nil {
			return
		}
		if w.Code >= 500 && w.Code != http.StatusNotImplemented && w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
		var e httpapi.Failure
		if w.Code >= 400 && method != http.MethodHead && (json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Reason.Code == "") {
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
		tidy(t, home, claim.Data.SandboxID, volume.Data.ID)
	})
}

// tidy destroys what a request has made, but for what is to stay.
func tidy(t *testing.T, home *sandbox.Home, stay ...string) {
	page, err := home.Workspaces(t.Context(), api.ListRequest{NewestFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range page.Workspaces {
		if w.ID == stay[0] || w.ID == stay[1] {
			continue
		}
		if w.State != api.Unmounted {
			if _, err := home.Unmount(t.Context(), api.UnmountRequest{Workspace: w.ID, Force: true}); err != nil {
				t.Error(err)
			}
		}
		if _, err := home.Destroy(t.Context(), api.DestroyRequest{Ref: w.ID, Now: true}); err != nil {
			t.Error(err)
		}
	}
}

// routes are the paths of the document with their methods.
func routes(t testing.TB, server *httpapi.Server) map[string][]string {
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/openapi.json", nil))
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for path, methods := range document.Paths {
		for method := range methods {
			if !strings.HasPrefix(path, "/api/") {
				continue // the daemon's own
			}
			all[path] = append(all[path], strings.ToUpper(method))
		}
	}
	if len(all) == 0 {
		t.Fatal(fmt.Sprint("no routes in ", w.Body))
	}
	return all
}

// archive is a tar file with a directory and a file in it.
func archive(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range []tar.Header{
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "d/unpacked", Typeflag: tar.TypeReg, Mode: 0o600, Size: 8},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("unpacked")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// body is one of JSON that a call takes, with all that it may have.
type body struct {
	method, path string
	text         []byte
}

// bodies gives one for each call of the document that takes JSON.
func bodies(t testing.TB, server *httpapi.Server) []body {
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/openapi.json", nil))
	var document map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	at := func(from any, keys ...string) map[string]any {
		m, _ := from.(map[string]any)
		for _, key := range keys {
			m, _ = m[key].(map[string]any)
		}
		return m
	}
	var sample func(schema map[string]any) any
	sample = func(schema map[string]any) any {
		if ref, ok := schema["$ref"].(string); ok {
			return sample(at(document, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...))
		}
		kind := schema["type"]
		if either, ok := kind.([]any); ok {
			kind = either[0]
		}
		switch kind {
		case "object":
			o := map[string]any{}
			for name, property := range at(schema, "properties") {
				if name != "$schema" {
					o[name] = sample(property.(map[string]any))
				}
			}
			return o
		case "array":
			return []any{}
		case "integer", "number":
			return 1
		case "boolean":
			return true
		}
		if schema["format"] == "date-time" {
			return "2999-01-01T00:00:00Z"
		}
		return "a"
	}
	var all []body
	for path, methods := range at(document, "paths") {
		for method := range at(methods) {
			schema := at(methods, method, "requestBody", "content", "application/json", "schema")
			if schema == nil || !strings.HasPrefix(path, "/api/") {
				continue
			}
			text, err := json.Marshal(sample(schema))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, body{strings.ToUpper(method), path, text})
		}
	}
	if len(all) < 10 {
		t.Fatalf("only %d calls take JSON", len(all))
	}
	return all
}
