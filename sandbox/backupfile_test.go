package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/api"
)

// TestBackupIsOpenedOnce: what was checked of the image of a backup is checked of the file that is read.
func TestBackupIsOpenedOnce(t *testing.T) {
	h := openTest(t, t.TempDir())
	src := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "f"), []byte("text"), 0o644))
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Source: src})
	require.NoError(t, err)
	_, err = h.Snapshot(t.Context(), SnapshotRequest{Workspace: "w", Name: "s"})
	require.NoError(t, err)
	got, err := h.Export(t.Context(), ExportRequest{Snapshot: "s", Path: t.TempDir(), Format: api.FormatBackup})
	require.NoError(t, err)
	for what, replace := range map[string]func(kept string) error{
		"a link to it":  func(kept string) error { return os.Symlink(kept, got.Path) },
		"a longer file": func(string) error { return os.WriteFile(got.Path, make([]byte, got.Size+1), 0o644) },
		"a directory":   func(string) error { return os.Mkdir(got.Path, 0o755) },
		"nothing":       func(string) error { return nil },
	} {
		from, err := h.findSource(t.Context(), CreateRequest{Source: filepath.Dir(got.Path)})
		require.NoError(t, err)
		kept := filepath.Join(filepath.Dir(filepath.Dir(got.Path)), "kept")
		require.NoError(t, os.Rename(got.Path, kept))
		require.NoError(t, replace(kept))
		err = from.load(t.Context(), layers.Usage{}, nil, func(*chunkstore.Tx, chunkstore.Manifest) error {
			t.Errorf("%s in the place of the image was stored", what)
			return nil
		})
		require.Error(t, err, what)
		require.NotNil(t, api.ClassOf(err).Err, what)
		require.NoError(t, os.RemoveAll(got.Path))
		require.NoError(t, os.Rename(kept, got.Path))
	}
}
