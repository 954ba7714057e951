package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/internal/treewalk"
)

// TestDemo runs the README's first command on a relative directory.
func TestDemo(t *testing.T) {
	h := newHome(t)
	tree(t, h.makeDir("some dir"))
	before := walk(t, h.path("some dir"))
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	built, _ := os.Stat(filepath.Join(root, "bin/snapfs")) // of the user, who may have none
	r := process(t, 3*time.Minute, h.tmp, append(h.env, "SNAPFS_HOME="), filepath.Join(root, "demo.sh"), "some dir")
	after, _ := os.Stat(filepath.Join(root, "bin/snapfs"))
	require.Equal(t, built, after)
	require.Zero(t, r.code, "%s%s", tail(r.out), tail(r.err))
	require.Contains(t, r.out, "A made-by-demo")
	require.Contains(t, r.out, "the same, file by file")
	same(t, "the demo's source", before, walk(t, h.path("some dir")), treewalk.Options{Ctime: true})
	require.Equal(t, []string{"some dir"}, names(t, h.tmp))

	require.Equal(t, 2, process(t, soon, h.tmp, h.env, filepath.Join(root, "demo.sh"), "no such dir").code)
}

// TestExample runs the Go API's example program, under an umask that must not matter to what its workspaces hold.
func TestExample(t *testing.T) {
	h := newHome(t)
	tree(t, h.makeDir("src"))
	r := process(t, 10*time.Minute, ".", h.env, "bash", "-c", `umask 077; exec go run ../../examples/branches "$1"`, "script", h.path("src"))
	require.Zero(t, r.code, "%s%s", tail(r.out), tail(r.err))
	require.Contains(t, r.out, "A left.txt")
	require.Contains(t, r.out, "A right.txt")
	require.Equal(t, []string{"src"}, names(t, h.tmp))
}
