package sample

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Disk mounts an ext4 file system of some MiB for the test, of which root has reserved percent for itself; or one
// of the kind of $SNAPFS_DISK, if it is large enough for that.
func Disk(t testing.TB, mib int64, reserved string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	img, mnt := filepath.Join(dir, "img"), filepath.Join(dir, "mnt")
	require.NoError(t, os.Mkdir(mnt, 0o700))
	require.NoError(t, os.WriteFile(img, nil, 0o600))
	require.NoError(t, os.Truncate(img, mib<<20))
	mkfs := []string{"mkfs.ext4", "-q", "-m", reserved, img}
	if os.Getenv("SNAPFS_DISK") == "xfs" && mib >= 300 {
		mkfs = []string{"mkfs.xfs", "-q", img}
	}
	out, err := exec.CommandContext(ctx, mkfs[0], mkfs[1:]...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(ctx, "mount", "-o", "loop", img, mnt).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Error("unmount:", err)
			_ = unix.Unmount(mnt, unix.MNT_DETACH)
		}
	})
	return mnt
}
