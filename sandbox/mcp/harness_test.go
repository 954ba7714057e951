package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/workfiles"
)

func TestMain(m *testing.M) {
	workfiles.Child()
	os.Exit(m.Run())
}

// station is a home with an agent's client.
type station struct {
	*testing.T
	home    *sandbox.Home
	dir     string
	service Service
}

func newStation(t *testing.T) *station {
	t.Helper()
	s := &station{T: t, dir: t.TempDir()}
	home, err := sandbox.Open(t.Context(), filepath.Join(s.dir, "home"), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.home, s.service = home, home
	t.Cleanup(func() {
		if err := home.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// agent is a client of a server.
type testAgent struct {
	*station
	*mcp.ClientSession
	progress chan *mcp.ProgressNotificationParams
}

// someone may do everything in a session.
func someone(session string) Caller {
	return Caller{Access: api.Access{Session: session}, Scopes: api.AllScopes(), Key: session}
}

// begin starts an agent over streams.
func (s *station) begin(who Caller) *testAgent {
	s.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		served <- Serve(ctx, s.service, who, Options{Version: "test", Home: s.home.Dir()}, Streams{In: inR, Out: outW})
		_ = outW.Close()
	}()
	a := s.connect(&mcp.IOTransport{Reader: outR, Writer: inW})
	s.Cleanup(func() {
		_ = a.Close()
		cancel()
		if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
			s.Log(err)
		}
	})
	return a
}

// address serves agents over HTTP. Who is a bearer token of the form SESSION or SESSION/SCOPE.
func (s *station) address() (h *Handler, url string) {
	s.Helper()
	h = NewHandler(s.service, HTTPOptions{Options: Options{Version: "test", Home: s.home.Dir()}, Who: whoTest})
	server := httptest.NewServer(h)
	s.Cleanup(func() {
		if err := h.Close(); err != nil {
			s.Error(err)
		}
		server.Close()
	})
	return h, server.URL
}

func whoTest(r *http.Request) (Caller, error) {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	session, scope, limited := strings.Cut(token, "/")
	who := someone(session)
	who.Key = token
	if limited {
		who.Scopes = []api.Scope{api.Scope(scope)}
	}
	if session == "" {
		return who, api.ErrRefused
	}
	return who, nil
}

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// over starts an agent over HTTP.
func (s *station) over(url, token string) *testAgent {
	s.Helper()
	a := s.connect(&mcp.StreamableClientTransport{
		Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}, DisableStandaloneSSE: true,
	})
	s.Cleanup(func() { _ = a.Close() })
	return a
}

func (s *station) connect(over mcp.Transport) *testAgent {
	s.Helper()
	progress := make(chan *mcp.ProgressNotificationParams, 100)
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			select {
			case progress <- r.Params:
			default:
			}
		},
	})
	session, err := c.Connect(s.Context(), over, nil)
	if err != nil {
		s.Fatal(err)
	}
	return &testAgent{s, session, progress}
}

// patience is the bound of a wait.
const patience = time.Minute

type args map[string]any

// call calls a tool, and gives what it answers in words and as fields.
func (a *testAgent) call(tool string, in args) (text string, out map[string]any) {
	a.Helper()
	r := a.raw(tool, in)
	if r.IsError {
		a.Fatalf("%s %v: %s", tool, in, words(r))
	}
	return words(r), fields(a.T, r)
}

// fails calls a tool that is to fail with an error that has some words.
func (a *testAgent) fails(tool string, in args, has ...string) {
	a.Helper()
	r := a.raw(tool, in)
	text := words(r)
	if !r.IsError {
		a.Errorf("%s %v: no error: %s", tool, in, text)
	}
	for _, w := range has {
		if !strings.Contains(text, w) {
			a.Errorf("%s %v: %q, without %q", tool, in, text, w)
		}
	}
	if strings.Contains(text, a.dir) {
		a.Errorf("%s %v: %q names a path of the host", tool, in, text)
	}
}

func (a *testAgent) raw(tool string, in args) *mcp.CallToolResult {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
	defer cancel()
	r, err := a.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: in})
	if err != nil {
		a.Fatalf("%s %v: %v", tool, in, err)
	}
	return r
}

func words(r *mcp.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			all = append(all, t.Text)
		}
	}
	return strings.Join(all, "\n")
}

func fields(t *testing.T, r *mcp.CallToolResult) (out map[string]any) {
	t.Helper()
	text, err := json.Marshal(r.StructuredContent)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// has fails unless a text has some words.
func has(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, w := range all {
		if !strings.Contains(text, w) {
			t.Errorf("%q has no %q", text, w)
		}
	}
}
