package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// SilentMount mounts what has a server that never answers.
func SilentMount(t *testing.T, at string, options string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(at, 0o755))
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	require.NoError(t, err)
	options = fmt.Sprintf("fd=%d,rootmode=40000,%s", device.Fd(), options)
	require.NoError(t, unix.Mount("silent", at, "fuse", 0, options))
	t.Cleanup(func() {
		_ = device.Close() // what waits for an answer fails
		require.NoError(t, unix.Unmount(at, unix.MNT_DETACH))
	})
}

// TestSilentArchive: who names archives on a file system that does not answer waits for a while, and only so many of its
// calls do. Others are not held up.
func TestSilentArchive(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	before := archiveWait
	t.Cleanup(func() { archiveWait = before })
	h := openTest(t, t.TempDir())
	dir := t.TempDir()
	good := imageFile(t, filepath.Join(t.TempDir(), "image.tar"), "one")
	SilentMount(t, filepath.Join(dir, "silent"), "user_id=0,group_id=0,allow_other")
	create := func(name, source string) error {
		_, err := h.Create(t.Context(), CreateRequest{Name: name, Source: source})
		return err
	}
	archiveWait = 100 * time.Millisecond
	for i, prefix := range []string{api.DockerArchive + ":", "", api.OCILayout + ":", api.OCIArchive + ":"} {
		err := create("bad", prefix+filepath.Join(dir, "silent", "x"))
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorContains(t, err, "does not answer")
		if i == 0 {
			archiveWait = 30 * time.Second
			require.NoError(t, create("good", good), "others go on")
			archiveWait = 100 * time.Millisecond
		}
	}
	archiveWait = time.Hour
	err := create("bad", filepath.Join(dir, "silent", "x"))
	require.ErrorIs(t, err, ErrUnavailable, "it is not waited for any more")
}
