package sandbox

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/peer"
)

// A service that uses the files of workspaces mounts them where nobody has to choose a place: see ServiceMountpoint.

// ServiceMountpoint is api.ServiceMountpoint.
func ServiceMountpoint(home, workspace string) string { return api.ServiceMountpoint(home, workspace) }

// isServicePoint reports whether a path is one of those in the home on which workspaces may be mounted. The directory is
// removed with the mount.
func (h *Home) isServicePoint(path string) bool {
	return filepath.Dir(path) == filepath.Dir(ServiceMountpoint(h.dir, "w"))
}

// makeServicePoints makes the directory of these places if a workspace is to be mounted in one.
func (h *Home) makeServicePoints(ctx context.Context, mountpoint string) error {
	if peer.From(ctx) != nil || !h.isServicePoint(filepath.Clean(mountpoint)) {
		return nil
	}
	dir := filepath.Dir(filepath.Clean(mountpoint))
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return pathError(dir, err)
	}
	h.points.At("directory of services' mounts made")
	return nil
}
