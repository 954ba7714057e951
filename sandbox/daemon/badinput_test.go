package daemon_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/api/wire"
	"snapfs/sandbox/daemon/daemontest"
)

func TestBadInput(t *testing.T) {
	d := daemontest.Start(t, nil)
	secret := d.Token(t, "a").Secret
	long := strings.Repeat("n", 10_000)
	if r := d.Call(t, wire.CallCreate, secret, sandbox.CreateRequest{Name: "w"}); r.Status != 200 {
		t.Fatalf("create: %d %s", r.Status, r.Body)
	}
	before := d.Call(t, wire.CallWorkspaces, secret, sandbox.ListRequest{}).Body
	for _, tc := range []struct {
		what, method, path string
		body               any
		status             int
		class              string
	}{
		{"no document", "POST", "/v1/create", "", 400, "invalid"},
		{"no JSON", "POST", "/v1/create", "hello", 400, "invalid"},
		{"half a document", "POST", "/v1/create", `{"name":"v"`, 400, "invalid"},
		{"two documents", "POST", "/v1/create", `{"name":"v"}{"name":"u"}`, 400, "invalid"},
		{"a list", "POST", "/v1/create", `[]`, 400, "invalid"},
		{"an unknown field", "POST", "/v1/create", `{"name":"v","nmae":"v"}`, 400, "invalid"},
		{"a wrong type", "POST", "/v1/create", `{"name":7}`, 400, "invalid"},
		{"a number that is too large", "POST", "/v1/workspaces", `{"limit":99999999999999999999}`, 400, "invalid"},
		{"deep nesting", "POST", "/v1/create", strings.Repeat("[", 100_000), 400, "invalid"},
		{"more than a request may have", "POST", "/v1/create", `{"name":"` + strings.Repeat("v", 1<<20) + `"}`, 400, "invalid"},
		{"a long name", "POST", "/v1/create", sandbox.CreateRequest{Name: long}, 400, "invalid"},
		{"a long reference", "POST", "/v1/show", sandbox.RefRequest{Ref: long}, 400, "invalid"},
		{"a long snapshot name", "POST", "/v1/snapshot", sandbox.SnapshotRequest{Workspace: "w", Name: long}, 400, "invalid"},
		{"a long description", "POST", "/v1/snapshot", sandbox.SnapshotRequest{Workspace: "w", Description: long}, 400, "invalid"},
		{"a long session", "POST", "/v1/workspaces", `{"session":"` + long + `"}`, 400, "invalid"},
		{"control characters", "POST", "/v1/create", "{\"name\":\"a\\u0000b\"}", 400, "invalid"},
		{"an unknown call", "POST", "/v1/fly", `{}`, 404, "not_found"},
		{"another method", "PUT", "/v1/create", `{}`, 405, "invalid"},
		{"another path", "GET", "/../etc/passwd", nil, 404, "not_found"},
		{"a bad query", "GET", "/v1/events?nosuch=1", nil, 400, "invalid"},
		{"a query twice", "GET", "/v1/events?follow=1&follow=0", nil, 400, "invalid"},
	} {
		r := d.Do(t, tc.method, tc.path, secret, tc.body)
		if r.Status != tc.status {
			t.Errorf("%s: status %d, want %d: %.200s", tc.what, r.Status, tc.status, r.Body)
			continue
		}
		if e := r.Error(t); e == nil || e.Class != tc.class || len(e.Message) > 1000 || e.Request == "" {
			t.Errorf("%s: error %+v", tc.what, e)
		}
		if kind := r.Header.Get("Content-Type"); kind != "application/json" {
			t.Errorf("%s: it is %s", tc.what, kind)
		}
	}
	if after := d.Call(t, wire.CallWorkspaces, secret, sandbox.ListRequest{}).Body; string(after) != string(before) {
		t.Errorf("something was done: %s, before %s", after, before)
	}
}

// TestDeleteTwice: to delete something again is as harmless as it is on the socket.
func TestDeleteTwice(t *testing.T) {
	d := daemontest.Start(t, nil)
	secret := d.Token(t, "a").Secret
	d.Call(t, wire.CallCreate, secret, sandbox.CreateRequest{Name: "w"})
	page, err := d.Snapshot(t.Context(), sandbox.SnapshotRequest{Access: sandbox.Access{Session: "a"}, Workspace: "w", Name: "first"})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if r := d.Call(t, wire.CallDelete, secret, sandbox.RefRequest{Ref: page.ID}); r.Status != 200 {
			t.Errorf("delete: %d %s", r.Status, r.Body)
		}
	}
	for i, want := range []int{200, 404} {
		if r := d.Call(t, wire.CallDestroy, secret, sandbox.DestroyRequest{Ref: "w"}); r.Status != want {
			t.Errorf("destroy, %d: %d %s", i, r.Status, r.Body)
		}
	}
}

// TestBrowsersAreNotMisused: a page of another site, and one for which the name of this machine was made another's, are
// refused before anything is looked at.
func TestBrowsersAreNotMisused(t *testing.T) {
	d := daemontest.Start(t, nil)
	secret := d.Token(t, "a").Secret
	own := strings.TrimPrefix(d.URL, "http://")
	for _, tc := range []struct {
		headers []string
		status  int
	}{
		{nil, 200},
		{[]string{"Origin", "http://" + own}, 200},
		{[]string{"Origin", "http://evil.example"}, 403},
		{[]string{"Origin", "null"}, 403},
		{[]string{"Origin", "http://localhost:1"}, 403},
		{[]string{"Host", "evil.example"}, 403},
		{[]string{"Host", "127.0.0.1.evil.example:80"}, 403},
		{[]string{"Host", "localhost:80"}, 200},
		{[]string{"Host", "[::1]"}, 200},
	} {
		if r := d.Do(t, http.MethodPost, "/v1/info", secret, `{}`, tc.headers...); r.Status != tc.status {
			t.Errorf("%v: status %d, want %d: %s", tc.headers, r.Status, tc.status, r.Body)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	d := daemontest.Start(t, nil)
	for _, tc := range []struct {
		id   string
		kept bool
	}{
		{"abc-1.2_3", true},
		{strings.Repeat("x", 64), true},
		{"", false},
		{strings.Repeat("x", 65), false},
		{"a b", false},
		{"a\"b", false},
		{"é", false},
	} {
		r := d.Do(t, http.MethodPost, "/v1/info", "", `{}`, "X-Request-Id", tc.id)
		got := r.Header.Get("X-Request-Id")
		if (got == tc.id) != tc.kept || got == "" || r.Error(t).Request != got {
			t.Errorf("%q: the answer has %q, its error %+v", tc.id, got, r.Error(t))
		}
	}
}

func TestHealth(t *testing.T) {
	d := daemontest.Start(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		if r := d.Do(t, http.MethodGet, path, "", nil); r.Status != 200 || string(r.Body) != "{\"status\":\"ok\"}\n" {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
		if r := d.Do(t, http.MethodPost, path, "", "{}"); r.Status != 405 {
			t.Errorf("POST %s: %d %s", path, r.Status, r.Body)
		}
	}
	measures := d.Token(t, "a", sandbox.ScopeMetrics).Secret
	for secret, status := range map[string]int{"": 401, d.Token(t, "a").Secret: 403, measures: 200} {
		d.Call(t, wire.CallInfo, measures, wire.None{})
		r := d.Do(t, http.MethodGet, "/metrics", secret, nil)
		if shown := strings.Contains(string(r.Body), "snapfs_http_requests_total{"); r.Status != status || shown != (status == 200) {
			t.Errorf("metrics: %d %.100s, want status %d", r.Status, r.Body, status)
		}
	}
	resp, err := overSocket(d).Get("http://snapfs/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != 200 {
		t.Errorf("metrics on the socket: %d, %v", resp.StatusCode, err)
	}
}

// TestExpiredToken: a token is refused from the moment on that it has expired, and listed for a while.
func TestExpiredToken(t *testing.T) {
	d := daemontest.Start(t, nil)
	made, err := d.CreateToken(t.Context(), sandbox.TokenRequest{TTL: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for time.Now().Before(made.ExpiresAt.Add(time.Millisecond)) {
		time.Sleep(time.Millisecond)
	}
	if r := d.Call(t, wire.CallInfo, made.Secret, wire.None{}); r.Status != 401 {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	if page, err := d.Tokens(t.Context(), sandbox.ListRequest{}); err != nil || len(page.Tokens) != 1 {
		t.Errorf("listed: %+v, %v", page, err)
	}
}

// TestTokenIsInNoEvent: what is logged of a token is its id.
func TestTokenIsInNoEvent(t *testing.T) {
	d := daemontest.Start(t, nil)
	made := d.Token(t, "a", sandbox.ScopeRead)
	d.Call(t, wire.CallSnapshot, made.Secret, sandbox.SnapshotRequest{Workspace: "w"})
	d.Call(t, wire.CallInfo, made.Secret+"x", wire.None{})
	texts := events(t, d, 3)
	for _, text := range texts {
		if strings.Contains(text, made.Secret[40:]) {
			t.Errorf("an event tells the secret: %s", text)
		}
	}
	if !strings.Contains(strings.Join(texts, "\n"), "token "+made.ID) {
		t.Errorf("no event names the token: %q", texts)
	}
}

// events waits for so many events of no workspace, of all sessions.
func events(t testing.TB, d *daemontest.Daemon, n int) (texts []string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		texts = nil
		err := d.Events(t.Context(), sandbox.EventsRequest{Access: sandbox.Access{AllowCrossSession: true}}, func(e sandbox.Event) error {
			if e.Workspace == "" {
				texts = append(texts, fmt.Sprintf("%s %s %s %s", e.Kind, e.Session, e.Level, e.Detail))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(texts) >= n {
			return texts
		}
	}
	t.Fatalf("only these events came: %q", texts)
	return nil
}
