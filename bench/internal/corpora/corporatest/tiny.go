package corporatest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/progress"
)

// Tiny is three states with an edit, a new file, a removal, a type change and a link.
func Tiny(t testing.TB) corpora.History {
	t.Helper()
	b, err := corpora.NewBuilder("tiny", t.TempDir(), progress.New(os.Stderr))
	require.NoError(t, err)
	h := corpora.History{Name: "tiny"}
	freeze := func() {
		require.NoError(t, b.Freeze(t.Context()))
		h.States = append(h.States, b.Prev)
	}
	require.NoError(t, b.Write("a/one", strings.Repeat("one\n", 2000)))
	require.NoError(t, b.Write("a/two", "two"))
	require.NoError(t, b.Write("b/three", "three"))
	require.NoError(t, os.Symlink("a/one", filepath.Join(b.Workspace, "link")))
	freeze()
	require.NoError(t, b.Edit("a/one", "one\none\n", "one\nuno\n"))
	require.NoError(t, os.RemoveAll(filepath.Join(b.Workspace, "b")))
	require.NoError(t, b.Write("c/d/four", "four"))
	freeze()
	require.NoError(t, os.Remove(filepath.Join(b.Workspace, "link")))
	require.NoError(t, os.RemoveAll(filepath.Join(b.Workspace, "c/d")))
	require.NoError(t, b.Write("c/d", "no directory now"))
	require.NoError(t, b.Write("link", "a file now"))
	require.NoError(t, os.Chmod(filepath.Join(b.Workspace, "a/two"), 0o755))
	freeze()
	return h
}
