package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/sandbox/api"
)

// TestHTTP: agents over HTTP are where they were, whatever connection their calls come over, and apart from each other.
func TestHTTP(t *testing.T) {
	s := newStation(t)
	_, url := s.address()
	a := s.over(url+"?workspace=app", "one")
	a.call("workspace_snapshot", args{"name": "start"})
	_, out := a.call("workspace_branch", args{"snapshot": "start"})
	branch := out["workspace"]
	if _, out = s.over(url+"?workspace=app", "one").call("workspace_list_snapshots", nil); out["workspace"] != branch {
		t.Errorf("another connection is in %v, want %v", out["workspace"], branch)
	}
	if _, out = s.over(url+"?workspace=app&state=two", "one").call("workspace_list_snapshots", nil); out["workspace"] != "app" {
		t.Errorf("another state is in %v", out["workspace"])
	}
	s.over(url, "one").fails("workspace_list_snapshots", nil, "several workspaces", "?workspace=NAME")
	text, out := s.over(url, "other").call("workspace_list_snapshots", nil)
	has(t, text, "is new")
	if _, again := s.over(url, "other").call("workspace_list_snapshots", nil); again["workspace"] != out["workspace"] {
		t.Errorf("an agent without a workspace is in %v, then in %v", out["workspace"], again["workspace"])
	}
	s.over(url, "other").fails("workspace_restore", args{"snapshot": "app:start"}, "no snapshot named")
	for _, query := range []string{"?workspace=No", "?state=workspace:app", "?state=" + strings.Repeat("x", 200)} {
		if status, _ := post(t, url+query, "one", "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); status != http.StatusBadRequest {
			t.Errorf("%s: status %d", query, status)
		}
	}
	if status, _ := post(t, url, "", "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`); status != http.StatusForbidden {
		t.Errorf("nobody: status %d", status)
	}
}

// TestScopes: an agent has the tools that its scopes allow, and no others.
func TestScopes(t *testing.T) {
	s := newStation(t)
	_, url := s.address()
	s.over(url+"?workspace=app", "one").call("workspace_snapshot", nil)
	all := []string{
		"workspace_branch", "workspace_delete_snapshot", "workspace_diff", "workspace_edit_file", "workspace_glob",
		"workspace_grep", "workspace_list_snapshots", "workspace_ls", "workspace_mkdir", "workspace_read_file",
		"workspace_restore", "workspace_rm", "workspace_snapshot", "workspace_stat", "workspace_write_file",
	}
	for _, tc := range []struct {
		token string
		want  []string
	}{
		{"one", all},
		{"one/read", []string{
			"workspace_diff", "workspace_glob", "workspace_grep", "workspace_list_snapshots", "workspace_ls",
			"workspace_read_file", "workspace_stat",
		}},
		{"one/write", []string{"workspace_edit_file", "workspace_mkdir", "workspace_rm", "workspace_write_file"}},
		{"one/snapshots", []string{"workspace_delete_snapshot", "workspace_snapshot"}},
		{"one/workspaces", []string{"workspace_branch", "workspace_restore"}},
	} {
		a := s.over(url+"?workspace=app", tc.token)
		got, err := a.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range got.Tools {
			names = append(names, tool.Name)
			if tool.Annotations == nil || tool.Annotations.DestructiveHint == nil || *tool.Annotations.OpenWorldHint ||
				tool.OutputSchema == nil || tool.Description == "" || tool.Title == "" {
				t.Errorf("tool %+v", tool)
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, tc.want) {
			t.Errorf("%s has %v, want %v", tc.token, names, tc.want)
		}
		for _, name := range all {
			if slices.Contains(tc.want, name) {
				continue
			}
			a.fails(name, args{}, "may not call "+name)
		}
	}
	s.over(url+"?workspace=none", "one/read").fails("workspace_diff", nil, "may not make one")
}

// TestSessions: sessions of an older protocol are bound to their caller, and a caller that begins too many loses the one
// that it used longest ago.
func TestSessions(t *testing.T) {
	s := newStation(t)
	h, url := s.address()
	var ids []string
	for range maxOwnSessions {
		ids = append(ids, initialize(t, url, "one"))
	}
	other := initialize(t, url, "other")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	if status, _ := post(t, url, "one", ids[0], ping); status != http.StatusOK {
		t.Errorf("the first session: status %d", status)
	}
	if status, _ := post(t, url, "other", ids[0], ping); status < 400 {
		t.Errorf("a session of somebody else: status %d", status)
	}
	ids = append(ids, initialize(t, url, "one"))
	for i, want := range map[int]int{0: http.StatusOK, 1: http.StatusNotFound, 2: http.StatusOK, maxOwnSessions: http.StatusOK} {
		if status, _ := post(t, url, "one", ids[i], ping); status != want {
			t.Errorf("session %d: status %d, want %d", i, status, want)
		}
	}
	if status, _ := post(t, url, "other", other, ping); status != http.StatusOK {
		t.Errorf("the session of the other: status %d", status)
	}
	r := request1(t, http.MethodDelete, url, "one", ids[0], "")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	h.sessions.mu.Lock()
	n := len(h.sessions.open["one"])
	h.sessions.mu.Unlock()
	if answer.StatusCode != http.StatusNoContent || n != maxOwnSessions-1 {
		t.Errorf("deleted: status %d, %d are left", answer.StatusCode, n)
	}
	live := 0
	for _, server := range h.all() {
		for range server.Sessions() {
			live++
		}
	}
	if live != maxOwnSessions { // one less of one, and one of the other
		t.Errorf("%d sessions are left", live)
	}
}

func request1(t *testing.T, method, url, token, session, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set(sessionHeader, session)
	}
	return r
}

func post(t *testing.T, url, token, session, body string) (status int, answer string) {
	t.Helper()
	r, err := http.DefaultClient.Do(request1(t, http.MethodPost, url, token, session, body))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// initialize begins a session of an older protocol.
func initialize(t *testing.T, url, token string) (id string) {
	t.Helper()
	r, err := http.DefaultClient.Do(request1(t, http.MethodPost, url, token, "", `{"jsonrpc":"2.0","id":0,"method":"initialize",
		"params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if id = r.Header.Get(sessionHeader); id == "" || !bytes.Contains(text, []byte("2025-06-18")) {
		t.Fatalf("initialize: %s: %s", r.Status, text)
	}
	if status, answer := post(t, url, token, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != http.StatusAccepted {
		t.Fatalf("initialized: %d %s", status, answer)
	}
	return id
}

// waiting is a service whose comparisons last until they are cancelled.
type waiting struct {
	Service

	begun, ended chan struct{}
}

func (w waiting) Diff(ctx context.Context, r api.DiffRequest, _ func(api.Change) error) error {
	if r.Progress != nil {
		r.Progress(api.Progress{Stage: "waiting"})
	}
	w.begun <- struct{}{}
	<-ctx.Done()
	w.ended <- struct{}{}
	return ctx.Err()
}

// TestCancel: a call ends with its client, however that goes, and reports progress meanwhile.
func TestCancel(t *testing.T) {
	s := newStation(t)
	w := waiting{s.service, make(chan struct{}), make(chan struct{})}
	s.service = w
	_, url := s.address()
	url += "?workspace=app"
	old := initialize(t, url, "one")
	// An id may be used again in a session only once the server has forgotten its request, which the test cannot see.
	diff := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call",`+
			`"params":{"name":"workspace_diff","arguments":{},"_meta":{"progressToken":"p"}}}`, id)
	}
	wait := func(what string, c chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatalf("%s: it goes on", what)
		}
	}
	cancelled := func(what string, progress chan *mcp.ProgressNotificationParams, ask func(ctx context.Context)) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); ask(ctx) }()
		wait(what+" begins", w.begun)
		if progress != nil {
			select {
			case p := <-progress:
				has(t, p.Message, "waiting")
			case <-time.After(patience):
				t.Errorf("%s: no progress is reported", what)
			}
		}
		cancel()
		wait(what, w.ended)
		wait(what+" returns", done)
	}
	call := func(a *testAgent) func(ctx context.Context) {
		return func(ctx context.Context) {
			p := &mcp.CallToolParams{Name: "workspace_diff"}
			p.SetProgressToken("p")
			_, _ = a.CallTool(ctx, p) // it is cancelled
		}
	}
	over := s.over(url, "one")
	cancelled("the present protocol", over.progress, call(over))
	who := someone("one")
	who.Start.Workspace = "app"
	stream := s.begin(who)
	cancelled("streams", stream.progress, call(stream))
	cancelled("an older protocol, by its connection", nil, func(ctx context.Context) {
		r, err := http.DefaultClient.Do(request1(t, http.MethodPost, url, "one", old, diff(7)).WithContext(ctx))
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body) // it is cut off
			_ = r.Body.Close()
		}
	})
	cancelled("an older protocol, by a notification", nil, func(ctx context.Context) {
		go func() {
			<-ctx.Done()
			note := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`
			r := request1(t, http.MethodPost, url, "one", old, note)
			if r, err := http.DefaultClient.Do(r.WithContext(context.WithoutCancel(ctx))); err == nil {
				_ = r.Body.Close()
			}
		}()
		r, err := http.DefaultClient.Do(request1(t, http.MethodPost, url, "one", old, diff(8)))
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
		}
	})
	cancelled("an older protocol, by the end of its session", nil, func(ctx context.Context) {
		go func() {
			<-ctx.Done()
			r := request1(t, http.MethodDelete, url, "one", old, "")
			if r, err := http.DefaultClient.Do(r.WithContext(context.WithoutCancel(ctx))); err == nil {
				_ = r.Body.Close()
			}
		}()
		r, err := http.DefaultClient.Do(request1(t, http.MethodPost, url, "one", old, diff(9)))
		if err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
		}
	})
}
