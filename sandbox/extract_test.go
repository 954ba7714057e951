package sandbox_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
)

// TestExtractThroughMounts: the home is the home under each name that it has, and so is each directory in it.
func TestExtractThroughMounts(t *testing.T) {
	dir := t.TempDir()
	h := openHome(t, dir+"/up/home", sandbox.Options{})
	_, err := h.Create(t.Context(), sandbox.CreateRequest{Name: "w"})
	require.NoError(t, err)
	s, err := h.Snapshot(t.Context(), sandbox.SnapshotRequest{Workspace: "w", WaitStored: true})
	require.NoError(t, err)
	bind := func(from, to string) string {
		require.NoError(t, os.MkdirAll(to, 0o755))
		require.NoError(t, unix.Mount(from, to, "", unix.MS_BIND, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(to, unix.MNT_DETACH)) })
		return to
	}
	home, store := bind(dir+"/up/home", dir+"/home"), bind(dir+"/up/home/store", dir+"/store")
	above := bind(dir+"/up", dir+"/above")
	twice := bind(home, dir+"/twice")
	for path, says := range map[string]string{
		home: "inside the home", home + "/new": "inside the home", home + "/store": "inside the home",
		store: "inside the home", store + "/new": "inside the home", twice + "/new": "inside the home",
		above + "/home/new": "inside the home", above: "contains the home", dir: "contains the home",
	} {
		_, err := h.Extract(t.Context(), sandbox.ExtractRequest{Snapshot: s.ID, Path: path, NoSync: true})
		require.ErrorIs(t, err, sandbox.ErrInvalid, path)
		require.ErrorContains(t, err, says, path)
	}
	_, err = h.Export(t.Context(), sandbox.ExportRequest{Snapshot: s.ID, Path: store + "/image.sqsh"})
	require.ErrorContains(t, err, "inside the home")
	_, err = h.Extract(t.Context(), sandbox.ExtractRequest{Snapshot: s.ID, Path: above + "/new", NoSync: true})
	require.NoError(t, err, "beside the home")
}
