package sandbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// noise gives bytes that no compressor makes shorter.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b) // it cannot fail
	return b
}

// leftOver is what a home has of what is nobody's: records, uppers, and the store's bytes.
func leftOver(t *testing.T, h *Home) string {
	t.Helper()
	require.NoError(t, h.uppers.WaitDiscarded(t.Context()))
	names, err := os.ReadDir(h.uppers.Dir())
	require.NoError(t, err)
	var made []string
	for _, n := range names {
		some, err := os.ReadDir(filepath.Join(h.uppers.Dir(), n.Name(), "upper"))
		if err == nil && len(some) > 0 {
			made = append(made, n.Name())
		}
	}
	u, err := h.store.Stats(t.Context())
	require.NoError(t, err)
	return fmt.Sprint(len(h.catalog.Workspaces()), len(h.catalog.Layers()), made, u.Manifests)
}

// TestImportWithinLimits makes workspaces with limits of sources of all kinds: of one that exceeds a limit there is none,
// the error says what is too large for what, and nothing is left.
func TestImportWithinLimits(t *testing.T) {
	h := openTest(t, t.TempDir())
	ctx, dir := t.Context(), t.TempDir()
	tree := filepath.Join(dir, "tree")
	require.NoError(t, os.Mkdir(tree, 0o755))
	const files, each = 12, 1 << 20 // more than is imported before a workspace is there
	var contents []string
	for i := range files {
		contents = append(contents, string(noise(uint64(i), each)))
		require.NoError(t, os.WriteFile(filepath.Join(tree, fmt.Sprint(i)), []byte(contents[i]), 0o644))
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	out, err := exec.CommandContext(ctx, "tar", "-C", tree, "-cf", file("tree.tar"), ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	image := imageFile(t, file("image.tar"), contents...)
	_, err = h.Create(ctx, CreateRequest{Name: "from", Source: tree, WaitImported: true})
	require.NoError(t, err)
	s, err := h.Snapshot(ctx, SnapshotRequest{Workspace: "from"})
	require.NoError(t, err)
	_, err = h.Export(ctx, ExportRequest{Snapshot: s.ID, Path: file("tree.sqsh")})
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(file("backups"), 0o755))
	backup, err := h.Export(ctx, ExportRequest{Snapshot: s.ID, Path: file("backups"), Format: api.FormatBackup})
	require.NoError(t, err)
	gone := func(name string) {
		t.Helper()
		_, err := h.Show(ctx, RefRequest{Ref: name})
		require.ErrorIs(t, err, ErrNotFound)
	}
	// The store still has all of it, and nothing needs it.
	_, err = h.Destroy(ctx, DestroyRequest{Ref: "from", Now: true})
	require.NoError(t, err)
	require.NoError(t, h.Delete(ctx, RefRequest{Ref: s.ID}))
	sources := []struct{ kind, path string }{
		{"directory", tree},
		{"tar file", file("tree.tar")},
		{"image", image},
		{"squashfs", file("tree.sqsh")},
		{"backup", filepath.Dir(backup.Path)},
	}
	before := leftOver(t, h)
	for _, collected := range []bool{false, true} {
		for _, src := range sources {
			for _, limit := range []api.Quota{{Size: 6 << 20}, {Inodes: 8}, {Size: 6 << 20, Inodes: 8}} {
				_, err := h.Create(ctx, CreateRequest{Name: "w", Source: src.path, Quota: limit})
				require.ErrorIs(t, err, unix.ENOSPC, "%s %+v %v", src.kind, limit, collected)
				require.ErrorContains(t, err, quotaText(limit))
				require.ErrorContains(t, err, "12 MiB")
				gone("w")
				_, err = h.Up(ctx, UpRequest{CreateRequest: CreateRequest{Name: "w", Source: src.path, Quota: limit}})
				require.ErrorIs(t, err, unix.ENOSPC)
				gone("w")
			}
			require.Equal(t, before, leftOver(t, h), src.kind)
		}
		_, err = h.GC(ctx, GCRequest{})
		require.NoError(t, err)
	}
	st, err := h.store.Stats(ctx)
	require.NoError(t, err)
	require.Less(t, st.Payload+st.Garbage, int64(2<<20))
	// What has room is imported, and what others have takes none.
	for i, src := range sources {
		name := fmt.Sprint("w", i)
		_, err := h.Create(ctx, CreateRequest{Name: name, Source: src.path, Quota: api.Quota{Size: 16 << 20, Inodes: 100}})
		require.NoError(t, err, src.kind)
		require.NoError(t, h.waitImported(ctx, h.catalog.Workspace(name).Base, nil))
		_, err = h.Create(ctx, CreateRequest{Name: name + "again", Source: src.path, Quota: api.Quota{Size: 16 << 20, Inodes: 100}})
		require.NoError(t, err, src.kind)
	}
	_, err = h.Create(ctx, CreateRequest{Name: "shared", Source: tree, Quota: api.Quota{Size: 6 << 20}})
	require.NoError(t, err)
}

// TestImportEndsSoon holds that an import reads little more than its limit allows for.
func TestImportEndsSoon(t *testing.T) {
	h := openTest(t, t.TempDir())
	dir := t.TempDir()
	const files, each = 20, 8 << 20
	for i := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d", i)), noise(uint64(i), each), 0o644))
	}
	read := int64(0)
	_, err := h.Create(t.Context(), CreateRequest{
		Name: "w", Source: dir, Quota: api.Quota{Size: 1 << 20}, Progress: func(p Progress) { read = max(read, p.Bytes) },
	})
	require.ErrorIs(t, err, unix.ENOSPC)
	require.Positive(t, read)
	require.Less(t, read, int64(files-4)*each)
}

// TestImportGrown has a directory grow beyond the limits of the workspace that stands on it: it is not imported, the
// workspace says so, and larger limits help.
func TestImportGrown(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), noise(1, 9<<20), 0o644))
	h, err := Open(ctx, t.TempDir(), Options{points: func(point string) {
		if point == "workspace stands on its source" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "more"), noise(2, 9<<20), 0o644))
		}
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	_, err = h.Create(ctx, CreateRequest{Name: "w", Source: dir, Quota: api.Quota{Size: 12 << 20}})
	require.NoError(t, err)
	base := h.catalog.Workspace("w").Base
	require.ErrorIs(t, h.waitImported(ctx, base, nil), unix.ENOSPC)
	o, err := h.Show(ctx, RefRequest{Ref: "w"})
	require.NoError(t, err)
	require.Contains(t, o.Workspace.Import.Problem, "12 MiB")
	size := int64(20 << 20)
	_, err = h.SetQuota(ctx, QuotaRequest{Workspace: "w", Size: &size})
	require.NoError(t, err)
	require.NoError(t, h.waitImported(ctx, base, nil))
}
