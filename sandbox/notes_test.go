package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// TestImportAgain imports a directory again, with its notes, without them, with damaged ones, and after what they name
// was collected.
func TestImportAgain(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	require.NoError(t, os.Mkdir(src, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(src, "a"), []byte("first"), 0o644))
	time.Sleep(200 * time.Millisecond) // what has just been written is not noted
	h := openHome(t, filepath.Join(dir, "home"), sandbox.Options{})
	imported := func(name string) []byte {
		_, err := h.Create(t.Context(), sandbox.CreateRequest{Name: name, Source: src})
		require.NoError(t, err)
		s, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: name})
		require.NoError(t, err)
		to := filepath.Join(dir, name)
		_, err = h.Export(t.Context(), sandbox.ExportRequest{Snapshot: s.ID, Path: to})
		require.NoError(t, err)
		all, err := os.ReadFile(to)
		require.NoError(t, err)
		require.NoError(t, h.Delete(t.Context(), sandbox.RefRequest{Ref: s.ID}))
		_, err = h.Destroy(t.Context(), sandbox.DestroyRequest{Ref: name, Now: true})
		require.NoError(t, err)
		return all
	}
	want := imported("one")
	require.Equal(t, want, imported("two"))
	seen := filepath.Join(dir, "home", "seen")
	files, err := os.ReadDir(seen)
	require.NoError(t, err)
	for _, f := range files { // one; none on file systems whose times say too little
		require.NoError(t, os.Truncate(filepath.Join(seen, f.Name()), 100))
	}
	require.Equal(t, want, imported("three"))
	_, err = h.GC(t.Context(), sandbox.GCRequest{})
	require.NoError(t, err)
	require.Equal(t, want, imported("four"))
	require.NoError(t, os.RemoveAll(seen))
	require.Equal(t, want, imported("five"))
	require.NoError(t, os.RemoveAll(seen))
	require.NoError(t, os.WriteFile(seen, nil, 0o600))
	require.Equal(t, want, imported("six"), "where nothing can be noted")
}
