package client_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports: who speaks to a daemon links the standard library and what describes the service, nothing of the service
// itself.
func TestImports(t *testing.T) {
	const api, wire, client = "snapfs/sandbox/api", "snapfs/sandbox/api/wire", "snapfs/sandbox/client"
	const locks = "snapfs/internal/lockorder"                                      // names for the types of package sync, outside of race builds
	const calls, mounts = "golang.org/x/sys/unix", "github.com/moby/sys/mountinfo" // what is mounted where a path leads
	const stopped = "snapfs/internal/processes"                                    // whether a daemon is
	for pkg, may := range map[string][]string{
		api: {api}, wire: {api, wire}, client: {calls, mounts, locks, stopped, api, wire, client},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(string(out)); !slices.Equal(got, may) {
			t.Errorf("%s links %v beside the standard library, want %v", pkg, got, may)
		}
	}
}
