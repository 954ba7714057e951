//go:build !race

package httpapi_test

import (
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"snapfs/sandbox/httpapi"
)

// TestClient drives the service with the published client, over a port. Under the race detector the calls that it makes are
// those of the other tests.
func TestClient(t *testing.T) {
	r := open(t, httpapi.Options{})
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "flow.mjs"} {
		text, err := os.ReadFile(filepath.Join("testdata", "sandbox0", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*wait)
	defer cancel()
	run := func(name string, args ...string) {
		t.Helper()
		c := exec.CommandContext(ctx, name, args...)
		c.Dir = dir
		c.Env = append(os.Environ(), "SERVICE_URL="+r.url, "SERVICE_TOKEN="+r.secret,
			"TEST_ARCHIVE="+base64.StdEncoding.EncodeToString(archive(t)))
		text, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		t.Logf("%s: %s", name, text)
	}
	// Once more, because registries have bad moments; the second time most is in the cache.
	run("sh", "-c", `npm="npm ci --ignore-scripts --no-audit --no-fund --prefer-offline --fetch-timeout=60000"; $npm || $npm`)
	run("node", "flow.mjs")
	if names := r.names(); len(names) != 0 {
		t.Errorf("there is something left: %v", names)
	}
}
