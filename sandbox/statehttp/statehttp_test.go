package statehttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/daemon/daemontest"
	"snapfs/sandbox/statehttp"
)

// start starts a daemon that serves the handler.
func start(t *testing.T) *daemontest.Daemon {
	t.Helper()
	return daemontest.Start(t, func(o *daemon.Options) {
		for _, pattern := range statehttp.Patterns() {
			o.Services = append(o.Services, daemon.Service{
				Pattern: pattern, Handler: statehttp.New(o.Home), Refuse: statehttp.Refuse,
			})
		}
	})
}

// user asks with a token.
type user struct {
	*testing.T
	url, token string
}

func newUser(t *testing.T, d *daemontest.Daemon, session string, scopes ...api.Scope) user {
	return user{t, d.URL + "/api/v1", d.Token(t, session, scopes...).Secret}
}

// ask makes a request and gives status and body.
func (t user) ask(method, url, body string) (*http.Response, string) {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+t.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // all is read
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// TestStorage goes through what a storage of sessions does.
func TestStorage(t *testing.T) {
	d := start(t)
	h, own := d.Home, newUser(t, d, "own")
	url := own.url
	scope := url + "/agent-sessions/chat/scopes/agent/a-1"
	wants := func(method, url, body string, status int, want string) *http.Response {
		t.Helper()
		resp, got := own.ask(method, url, body)
		if resp.StatusCode != status || want != "*" && got != want {
			t.Errorf("%s %s: %d %.200s, want %d %s", method, url, resp.StatusCode, got, status, want)
		}
		return resp
	}
	wants("GET", scope+"/snapshots/latest", "", 200, "null")
	wants("PUT", scope+"/snapshots/latest", ` {"a": "<1>"} `, 200, "*")
	wants("GET", scope+"/snapshots/latest", "", 200, `{"a":"<1>"}`)
	wants("GET", scope+"/snapshots", "", 200, `{"snapshotIds":[],"more":false}`)
	var ids []string
	for i := range 3 {
		id := uuid.Must(uuid.NewV7()).String()
		ids = append(ids, id)
		wants("PUT", scope+"/snapshots/"+id, fmt.Sprint(i), 200, "*")
	}
	wants("GET", scope+"/snapshots/"+ids[1], "", 200, "1")
	wants("PUT", scope+"/snapshots/"+ids[1], "2", 409, "*")
	wants("GET", scope+"/snapshots?limit=2", "", 200, fmt.Sprintf(`{"snapshotIds":["%s","%s"],"more":true}`, ids[0], ids[1]))
	after := strings.ToUpper(ids[1])
	wants("GET", scope+"/snapshots?startAfter="+after, "", 200, fmt.Sprintf(`{"snapshotIds":["%s"],"more":false}`, ids[2]))
	wants("GET", scope+"/snapshots?limit=0", "", 200, `{"snapshotIds":[],"more":false}`)
	wants("GET", scope+"/snapshots?limit=-1", "", 200, `{"snapshotIds":[],"more":false}`)
	wants("GET", scope+"/snapshots?startAfter=x", "", 400, "*")
	resp, text := own.ask("GET", scope+"/manifest", "")
	if resp.StatusCode != 200 || !strings.HasPrefix(text, `{"schemaVersion":"1.0","updatedAt":"2`) {
		t.Errorf("default manifest: %d %s", resp.StatusCode, text)
	}
	manifest := `{"schemaVersion":"1.0","updatedAt":"2026-01-02T03:04:05.678Z"}`
	wants("PUT", scope+"/manifest", manifest, 200, "*")
	wants("GET", scope+"/manifest", "", 200, manifest)

	access := sandbox.Access{Session: "own"}
	if _, err := h.Create(t.Context(), sandbox.CreateRequest{Access: access, Name: "w"}); err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Access: access, Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	wants("PUT", scope+"/snapshots/latest?snapshot="+s.ID, `"tied"`, 200, "*")
	if got := wants("GET", scope+"/snapshots/latest", "", 200, `"tied"`).Header.Get("Snapfs-Snapshot"); got != s.ID {
		t.Errorf("tied to %q", got)
	}
	var page api.DocumentPage
	_, text = own.ask("GET", url+"/agent-documents?snapshot=w:"+s.ID, "")
	if err := json.Unmarshal([]byte(text), &page); err != nil || len(page.Documents) != 1 || page.Documents[0].Scope != "a-1" {
		t.Errorf("tied documents: %s, %v", text, err)
	}
	wants("DELETE", scope+"/snapshots/"+ids[0], "", 204, "")
	wants("DELETE", scope+"/snapshots/"+ids[0], "", 204, "")
	wants("GET", scope+"/snapshots/"+ids[0], "", 200, "null")
	wants("DELETE", url+"/agent-sessions/chat", "", 204, "")
	wants("DELETE", url+"/agent-sessions/chat", "", 204, "")
	wants("GET", scope+"/snapshots/latest", "", 200, "null")
}

// TestRefused gives the handler what it must not take: each has a status, and a JSON body that says why.
func TestRefused(t *testing.T) {
	own := newUser(t, start(t), "own")
	url := own.url
	sessions := url + "/agent-sessions"
	latest := sessions + "/s/scopes/agent/a/snapshots/latest"
	for _, test := range []struct {
		method, url, body string
		status            int
	}{
		{"PUT", latest, `{"a":`, 400},
		{"PUT", latest, `{} {}`, 400},
		{"PUT", latest, "\"\xff\"", 400},
		{"PUT", latest, ``, 400},
		{"PUT", latest + "?snapshot=018f0000-0000-7000-8000-000000000000", `1`, 404},
		{"PUT", latest + "?snapsot=x", `1`, 400},
		{"PUT", latest + "?owner=a&owner=b", `1`, 400},
		{"PUT", latest + "?owner=other", `1`, 404}, // what belongs to others is not there for a token
		{"GET", latest + "?session=other", "", 403},
		{"GET", latest + "?owner=other&allowCrossSession=true", "", 403},
		{"PUT", latest + "?session=no%20session", `1`, 400},
		{"PUT", latest + "?allowCrossSession=maybe", `1`, 400},
		{"PUT", latest, `"` + strings.Repeat("x", api.MaxDocument+2<<20) + `"`, 413},
		{"POST", latest, `1`, 405},
		{"GET", sessions + "/S/scopes/agent/a/snapshots/latest", "", 400},
		{"GET", sessions + "/" + strings.Repeat("s", 10000) + "/scopes/agent/a/snapshots/latest", "", 400},
		{"GET", sessions + "/s/scopes/agent/%2e%2e/snapshots/latest", "", 400},
		{"GET", sessions + "/s/scopes/robot/a/snapshots/latest", "", 400},
		{"GET", sessions + "/s/scopes/agent/a/snapshots/newest", "", 400},
		{"GET", sessions + "/s/scopes/agent/a/snapshots?limit=many", "", 400},
		{"GET", sessions + "/s/scopes/agent/a", "", 404},
		{"GET", url + "/agent-documents", "", 400},
		{"PUT", sessions + "/s/scopes/agent/a/manifest", `{"schemaVersion":1,"updatedAt":"2026-01-02T03:04:05Z"}`, 400},
		{"PUT", sessions + "/s/scopes/agent/a/manifest", `{"schemaVersion":"1.0"}`, 400},
		{"PUT", sessions + "/s/scopes/agent/a/manifest", `[]`, 400},
	} {
		resp, text := own.ask(test.method, test.url, test.body)
		var body struct {
			Error struct{ Class, Message string }
		}
		err := json.Unmarshal([]byte(text), &body)
		if resp.StatusCode != test.status || err != nil || body.Error.Class == "" || body.Error.Message == "" {
			t.Errorf("%s %.100s: %d %.200s, want %d", test.method, test.url, resp.StatusCode, text, test.status)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), "PUT", latest, strings.NewReader(`1`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/plain")
	req.Header.Set("Authorization", "Bearer "+own.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // nothing is wanted
	if resp.StatusCode != 415 {
		t.Errorf("plain text: %d", resp.StatusCode)
	}
	if resp, text := own.ask("GET", latest, ""); resp.StatusCode != 200 || text != "null" {
		t.Errorf("after all that: %d %s", resp.StatusCode, text)
	}
}

// TestScopes: who may only read saves nothing, and each session has names of its own.
func TestScopes(t *testing.T) {
	d := start(t)
	own, reader, other := newUser(t, d, "own"), newUser(t, d, "own", api.ScopeRead), newUser(t, d, "other")
	latest := own.url + "/agent-sessions/s/scopes/agent/a/snapshots/latest"
	for _, test := range []struct {
		user   user
		method string
		status int
		body   string
	}{
		{own, "PUT", 200, ""},
		{reader, "PUT", 403, ""},
		{reader, "DELETE", 403, ""},
		{reader, "GET", 200, "1"},
		{other, "GET", 200, "null"},
		{user{t, own.url, "none"}, "GET", 401, ""},
	} {
		body := ""
		if test.method == "PUT" {
			body = "1"
		}
		resp, text := test.user.ask(test.method, latest, body)
		if resp.StatusCode != test.status || test.body != "" && text != test.body {
			t.Errorf("%s: %d %s, want %d %s", test.method, resp.StatusCode, text, test.status, test.body)
		}
	}
}

// FuzzHandler sends what clients should not: nothing panics, and errors are of the client.
func FuzzHandler(f *testing.F) {
	h, err := sandbox.Open(context.Background(), filepath.Join(f.TempDir(), "home"), sandbox.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := h.Close(); err != nil {
			f.Error(err)
		}
	})
	handler := statehttp.New(h)
	f.Add("PUT", "s/scopes/agent/a/snapshots/latest", "", `{"a":1}`)
	f.Add("PUT", "s/scopes/agent/a/manifest", "", `{"schemaVersion":"1.0","updatedAt":"2026-01-02T03:04:05Z"}`)
	f.Add("GET", "s/scopes/agent/a/snapshots", "limit=1&startAfter=018f0000-0000-7000-8000-000000000000", "")
	f.Add("DELETE", "s", "owner=x&allowCrossSession=1", "")
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL.Path, r.URL.RawQuery = method, "/api/v1/agent-sessions/"+path, query
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %q?%q: %d %s", method, path, query, w.Code, w.Body)
		}
		if text := w.Body.Bytes(); len(text) > 0 && w.Code != http.StatusTemporaryRedirect && !json.Valid(text) {
			t.Errorf("%s %q?%q: %d %q is not JSON", method, path, query, w.Code, text)
		}
	})
}
