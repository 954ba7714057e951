package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"snapfs/internal/treewalk"
	"snapfs/sandbox"
	"snapfs/sandbox/api"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/daemon/daemontest"
	"snapfs/sandbox/httpapi"
	"snapfs/sandbox/internal/workfiles"
)

// wait bounds every wait.
const wait = 5 * time.Minute

func TestMain(m *testing.M) {
	workfiles.Child()
	treewalk.Child()
	os.Exit(m.Run())
}

// rig is a daemon of a home of its own that serves the adapter, and a client with a token of the session "main".
type rig struct {
	*testing.T
	*daemontest.Daemon
	home   *sandbox.Home
	server *httpapi.Server
	url    string
	secret string
}

// open opens a home in a new directory and serves it.
func open(t *testing.T, o httpapi.Options) *rig {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "home")
	home, err := sandbox.Open(t.Context(), dir, sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, dir, home, o)
}

// serve serves a home, and closes it when the test ends.
func serve(t *testing.T, dir string, home *sandbox.Home, o httpapi.Options) *rig {
	t.Helper()
	r := &rig{T: t, home: home}
	r.server = httpapi.New(home, o)
	r.Daemon = daemontest.Serve(t, dir, home, func(d *daemon.Options) {
		d.Services = r.server.Services()
	})
	r.url, r.secret = r.URL, r.Token(t, "main").Secret
	return r
}

// answer is what came back of a request.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request. A body that is a string or bytes is sent as it is, anything else as JSON.
func (r *rig) do(method, path string, body any) answer {
	r.Helper()
	var in io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case string:
		in, kind = strings.NewReader(b), "application/octet-stream"
	case json.RawMessage:
		in = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			r.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	return r.send(method, path, kind, in)
}

// send sends a request with a body of some kind.
func (r *rig) send(method, path, kind string, in io.Reader) answer {
	r.Helper()
	q, err := http.NewRequestWithContext(r.Context(), method, r.url+path, in)
	if err != nil {
		r.Fatal(err)
	}
	if in != nil {
		q.Header.Set("Content-Type", kind)
	}
	q.Header.Set("Authorization", "Bearer "+r.secret)
	got, err := http.DefaultClient.Do(q)
	if err != nil {
		r.Fatal(err)
	}
	defer got.Body.Close() //nolint:errcheck // it was read
	text, err := io.ReadAll(got.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{got.StatusCode, got.Header, text}
}

// get sends a request that succeeds, and reads the data of its answer.
func get[T any](r *rig, method, path string, body any) T {
	r.Helper()
	var out struct {
		Success bool
		Data    T
	}
	a := r.do(method, path, body)
	if err := json.Unmarshal(a.body, &out); err != nil || a.status > 299 || !out.Success {
		r.Fatalf("%s %s: %d %s: %v", method, path, a.status, a.body, err)
	}
	return out.Data
}

// fails sends a request that is to fail with a status, and gives its message.
func (r *rig) fails(status int, method, path string, body any) string {
	r.Helper()
	a := r.do(method, path, body)
	var out httpapi.Failure
	err := json.Unmarshal(a.body, &out)
	if a.status != status || err != nil || out.Success || out.Reason.Code == "" || out.Reason.Message == "" {
		r.Errorf("%s %s: got %d %s, want %d: %v", method, path, a.status, a.body, status, err)
	}
	if a.header.Get("X-Request-Id") == "" {
		r.Errorf("%s %s: no request id", method, path)
	}
	return out.Reason.Message
}

// claim makes a sandbox, and gives the path of its calls.
func (r *rig) claim(body any) (id, path string) {
	r.Helper()
	c := get[httpapi.Claim](r, http.MethodPost, "/api/v1/sandboxes", body)
	if c.Status != httpapi.Running {
		r.Fatalf("claimed: %+v", c)
	}
	return c.SandboxID, "/api/v1/sandboxes/" + c.SandboxID
}

// eventually waits until something is so.
func (r *rig) eventually(what string, done func() bool) {
	r.Helper()
	for end := time.Now().Add(wait); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("not %s after %s", what, wait)
		}
	}
}

// names are the workspaces that are there.
func (r *rig) names() []string {
	r.Helper()
	page, err := r.home.Workspaces(r.Context(), api.ListRequest{Access: api.Access{AllowCrossSession: true}})
	if err != nil {
		r.Fatal(err)
	}
	names := []string{}
	for _, w := range page.Workspaces {
		names = append(names, w.ID)
	}
	return names
}

// run does the work of the adapter in the background until it is ended.
func (r *rig) run() (end func()) {
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan struct{})
	go func() { r.server.Run(ctx); close(ended) }()
	return func() { cancel(); <-ended }
}

// clock is one that the test sets.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Now().UnixNano())
	return c
}

func (c *clock) now() time.Time      { return time.Unix(0, c.at.Load()) }
func (c *clock) add(d time.Duration) { c.at.Add(int64(d)) }

// mountpoint is where a sandbox is mounted.
func (r *rig) mountpoint(id string) string {
	r.Helper()
	return get[httpapi.Sandbox](r, http.MethodGet, root+"/"+id, nil).Mountpoint
}

// sh runs a script in another process, which may use mounts.
func sh(t *testing.T, script string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", append([]string{"-ec", script, "sh"}, args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}
