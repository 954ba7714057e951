package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports checks that the client links nothing of the engine. The initialisation of its packages would take longer
// than most verbs.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	if !slices.Contains(all, "snapfs/sandbox/client") {
		t.Fatalf("not the packages of the client: %v", all)
	}
	for _, pkg := range all {
		for _, engine := range []string{
			"snapfs/chunkstore", "snapfs/squashfs", "snapfs/layers", "snapfs/fs", "snapfs/sandbox/daemon",
			"snapfs/sandbox/internal",
			"github.com/dgraph-io", "github.com/hanwen/go-fuse", "github.com/DataDog/zstd",
			"github.com/klauspost/compress",
			"github.com/prometheus", "go.opentelemetry.io", "google.golang.org/protobuf", "github.com/modelcontextprotocol",
		} {
			if pkg == "snapfs/sandbox" || pkg == engine || strings.HasPrefix(pkg, engine+"/") {
				t.Errorf("the client links %s", pkg)
				break
			}
		}
	}
}
