package e2e

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// mcpAgent is a client of a Model Context Protocol server.
type mcpAgent struct {
	t *testing.T
	*mcp.ClientSession
}

// agent starts 'snapfs mcp' as an agent does, in a directory. Wait tells how the process ends.
func (h *home) agent(dir string, args ...string) (a mcpAgent, wait func() error) {
	h.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(h.t.Context()), h.command, append([]string{"mcp"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), h.env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(h.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	require.NoError(h.t, cmd.Start())
	a = connectAgent(h.t, &mcp.IOTransport{Reader: out, Writer: in})
	return a, func() error { _ = in.Close(); return cmd.Wait() }
}

func connectAgent(t *testing.T, over mcp.Transport) mcpAgent {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), over, nil)
	require.NoError(t, err)
	return mcpAgent{t, s}
}

// call calls a tool, and gives what it answers in words; want is whether it is to succeed.
func (a mcpAgent) call(want bool, tool string, in map[string]any) string {
	a.t.Helper()
	r, err := a.CallTool(a.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: in})
	require.NoError(a.t, err)
	var words []string
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			words = append(words, text.Text)
		}
	}
	text := strings.Join(words, "\n")
	if r.IsError == want {
		a.t.Errorf("%s %v: %s", tool, in, text)
	}
	return text
}

// TestMCPStreams: 'snapfs mcp' serves the workspace of its directory, starts the daemon again when that is gone, goes on where
// it was, and ends with its standard input.
func TestMCPStreams(t *testing.T) {
	h := newHome(t)
	at := h.makeDir("app")
	h.write("src/a.txt", "one\n")
	h.ok("up", "app", at, "--from", h.path("src"))
	a, wait := h.agent(at)
	require.Equal(t, "one\n", a.call(true, "workspace_read_file", map[string]any{"path": "a.txt"}))
	a.call(true, "workspace_snapshot", map[string]any{"name": "one", "wait": true})
	a.call(true, "workspace_edit_file", map[string]any{"path": "a.txt", "old_text": "one", "new_text": "two"})
	require.Equal(t, "two\n", h.read("app/a.txt"), "what programs see in the mount")
	h.ok("stop")
	a.call(true, "workspace_branch", map[string]any{"snapshot": "one", "name": "try"})
	require.Equal(t, "one\n", a.call(true, "workspace_read_file", map[string]any{"path": "a.txt"}))
	require.NoError(t, wait(), "the end of the process")

	b, wait := h.agent(h.tmp, "--workspace", "app", "--read-only")
	text := b.call(true, "workspace_read_file", map[string]any{"path": "a.txt"})
	require.Equal(t, "Note: You go on in workspace try, where you were before.\none\n", text)
	require.Contains(t, b.call(false, "workspace_rm", map[string]any{"path": "a.txt"}), "lacks the scope write")
	require.NoError(t, wait())
	h.fails(3, "this directory is in no workspace", "mcp")
	h.fails(2, "--from is what a workspace is made of", "mcp", "--from", h.path("src"))

	fresh, wait := h.agent(h.tmp, "--workspace", "fresh", "--from", "app:one", "--state", "task-1")
	require.Contains(t, fresh.call(true, "workspace_ls", nil), "a.txt")
	require.NoError(t, wait())
	require.Equal(t, filepath.Join(h.dir, "mnt", "fresh"), h.workspace("fresh").Mountpoint)
}

// withToken sends the secret of a token with each request.
type withToken string

func (s withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(s))
	return http.DefaultTransport.RoundTrip(r)
}

// served starts a daemon that listens to the network, and gives its address.
func (h *home) served() (url string) {
	h.t.Helper()
	h.ok("create", "served") // the home
	h.ok("stop")
	require.NoError(h.t, os.WriteFile(filepath.Join(h.dir, "daemon.toml"), []byte("listen = [\"127.0.0.1:0\"]\n"), 0o600))
	h.ok("list")
	found := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(h.log())
	require.NotEmpty(h.t, found, h.log())
	return found
}

// TestMCPNetwork: agents with tokens use the daemon over HTTP, within the rights of the token.
func TestMCPNetwork(t *testing.T) {
	h := newHome(t)
	url := h.served() + "/mcp"
	agent := func(query string, create ...string) mcpAgent {
		secret := h.ok(append([]string{"token", "create", "--quiet"}, create...)...)
		a := connectAgent(t, &mcp.StreamableClientTransport{
			Endpoint: url + query, HTTPClient: &http.Client{Transport: withToken(secret)}, DisableStandaloneSSE: true,
		})
		t.Cleanup(func() { _ = a.Close() })
		return a
	}
	a := agent("?workspace=app", "--session", "one")
	a.call(true, "workspace_write_file", map[string]any{"path": "a.txt", "content": "one\n"})
	a.call(true, "workspace_snapshot", map[string]any{"name": "one"})
	a.call(true, "workspace_rm", map[string]any{"path": "a.txt"})
	require.Contains(t, a.call(true, "workspace_diff", nil), "D a.txt")
	a.call(true, "workspace_restore", map[string]any{"snapshot": "one"})
	require.Equal(t, "one\n", a.call(true, "workspace_read_file", map[string]any{"path": "a.txt"}))

	look := agent("?workspace=app", "--session", "one", "--scopes", "read")
	require.Equal(t, "one\n", look.call(true, "workspace_read_file", map[string]any{"path": "a.txt"}))
	look.call(false, "workspace_snapshot", nil)
	require.Eventually(t, func() bool { // the audit does not hold calls up
		return strings.Contains(h.ok("events", "--allow-cross-session"), "workspace_snapshot")
	}, soon, 20*time.Millisecond, "the refusal is audited")
	other := agent("", "--session", "two")
	require.Contains(t, other.call(false, "workspace_restore", map[string]any{"snapshot": "app:one"}), "no snapshot named")
	require.Contains(t, other.call(true, "workspace_list_snapshots", map[string]any{"all": true}), "There are no snapshots")
	r, err := http.Post(url, "application/json", strings.NewReader("{}")) //nolint:noctx // the daemon answers at once
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusUnauthorized, r.StatusCode)
}
