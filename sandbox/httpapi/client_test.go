package httpapi_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"snapfs/sandbox/httpapi"
)

// TestClient drives the service with the published client, over a port.
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
	ctx, cancel := context.WithTimeout(t.Context(), 4*wait)
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
