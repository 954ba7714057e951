package sandbox

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/imagefile"
)

// imageFile makes a docker archive whose layers have a file each, with these contents.
func imageFile(t *testing.T, path string, contents ...string) string {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	w := imagefile.NewWriter(f, imagefile.Gzip, 0)
	for i, text := range contents {
		_, err := w.Layer("test", func(to io.Writer) error {
			tw := tar.NewWriter(to)
			err := tw.WriteHeader(&tar.Header{
				Typeflag: tar.TypeReg, Name: fmt.Sprintf("d/%d", i), Size: int64(len(text)), Mode: 0o644, ModTime: time.Unix(1000, 0),
			})
			if err == nil {
				_, err = io.WriteString(tw, text)
			}
			return errors.Join(err, tw.Close())
		})
		require.NoError(t, err)
	}
	_, err = w.Finish(true, imagefile.Config{OS: "linux", Architecture: "amd64"}, time.Unix(1000, 0).UTC(), "")
	require.NoError(t, errors.Join(err, f.Close()))
	return api.DockerArchive + ":" + path
}

// TestImportImageCancelled ends an import at each of its steps, and finds that nothing of it is left.
func TestImportImageCancelled(t *testing.T) {
	h := openTest(t, t.TempDir())
	from := imageFile(t, filepath.Join(t.TempDir(), "image.tar"), "one", "two", "three")
	for step := 0; ; step++ {
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		_, err := h.Create(ctx, CreateRequest{Name: "w", Source: from, Progress: func(Progress) {
			if steps++; steps > step {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			require.Greater(t, step, 3)
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, h.catalog.Layers())
		require.Nil(t, h.catalog.Workspace("w"))
		require.Empty(t, h.catalog.Uppers())
		require.Eventually(t, func() bool {
			trash, err := h.catalog.Trash(t.Context())
			return err == nil && len(trash) == 0
		}, time.Minute, time.Millisecond)
	}
	require.Len(t, h.catalog.Layers(), 4)
}

// TestImportImageTogether imports images that share layers at the same time, beside merges and collections: each layer is
// there once, stays as long as something stands on it, and goes then.
func TestImportImageTogether(t *testing.T) {
	h := openTest(t, t.TempDir())
	dir := t.TempDir()
	one := imageFile(t, filepath.Join(dir, "one.tar"), "base", "middle", "one")
	two := imageFile(t, filepath.Join(dir, "two.tar"), "base", "middle", "two")
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			from := one
			if i%2 == 1 {
				from = two
			}
			_, err := h.Create(t.Context(), CreateRequest{Name: fmt.Sprint("w-", i), Source: from})
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Len(t, h.catalog.Layers(), 2+2*2)
	for i := range 5 {
		_, err := h.Destroy(t.Context(), DestroyRequest{Ref: fmt.Sprint("w-", i), Now: true})
		require.NoError(t, err)
	}
	s, err := h.Snapshot(t.Context(), SnapshotRequest{Workspace: "w-5", Name: "s", WaitStored: true})
	require.NoError(t, err)
	_, err = h.GC(t.Context(), GCRequest{})
	require.NoError(t, err)
	require.Len(t, h.catalog.Layers(), 4, "those of an image are not merged")
	got, err := h.Export(t.Context(), ExportRequest{Snapshot: s.ID, Path: filepath.Join(dir, "out.tar"), Format: api.FormatOCI})
	require.NoError(t, err)
	require.Len(t, got.Image.Layers, 3)
	checked, err := h.Check(t.Context(), CheckRequest{ReadData: true})
	require.NoError(t, err)
	require.Empty(t, checked.Problems)
	require.NoError(t, h.Delete(t.Context(), RefRequest{Ref: s.ID}))
	_, err = h.Destroy(t.Context(), DestroyRequest{Ref: "w-5", Now: true})
	require.NoError(t, err)
	require.Empty(t, h.catalog.Layers())
}

// TestImportImageHeldUp imports an image while another session's import, which says that it has the same layers, does not
// get on.
func TestImportImageHeldUp(t *testing.T) {
	h := openTest(t, t.TempDir())
	from := imageFile(t, filepath.Join(t.TempDir(), "image.tar"), "one", "two")
	ctx, cancel := context.WithCancel(t.Context())
	begun, other := make(chan struct{}), make(chan error, 1)
	go func() {
		var once sync.Once
		_, err := h.Create(ctx, CreateRequest{Name: "other", Access: Access{Session: "other"}, Source: from, Progress: func(Progress) {
			once.Do(func() { close(begun) })
			<-ctx.Done()
		}})
		other <- err
	}()
	<-begun
	soon, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	_, err := h.Create(soon, CreateRequest{Name: "w", Source: from})
	cancel()
	require.ErrorIs(t, <-other, context.Canceled)
	require.NoError(t, err)
	require.Len(t, h.catalog.Layers(), 3)
}

// TestImportImageFull imports an image which there is room for, but for the part of the disk that is the store's.
func TestImportImageFull(t *testing.T) {
	disk := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=256m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, 0)) })
	h := openTest(t, filepath.Join(disk, "home"))
	var st unix.Statfs_t
	require.NoError(t, unix.Statfs(disk, &st))
	from := imageFile(t, filepath.Join(t.TempDir(), "image.tar"), strings.Repeat("x", int(st.Bavail)*int(st.Bsize)-3<<20))
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Source: from})
	require.ErrorIs(t, err, unix.ENOSPC)
	_, err = h.Create(t.Context(), CreateRequest{Name: "w"})
	require.NoError(t, err)
	require.NoError(t, h.Close())
}

func TestSplits(t *testing.T) {
	var got [][2]string
	for path, ref := range splits("/a:b/c:d@sha256:e") {
		got = append(got, [2]string{path, ref})
	}
	require.Equal(t, [][2]string{
		{"/a:b/c:d@sha256:e", ""}, {"/a:b/c:d@sha256", "e"}, {"/a:b/c:d", "@sha256:e"}, {"/a:b/c", "d@sha256:e"}, {"/a", "b/c:d@sha256:e"},
	}, got)
}
