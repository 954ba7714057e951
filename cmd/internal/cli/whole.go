package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// whole gives the name of the workspace that a verb takes away as a whole: by its name, or by a path that is where it is
// mounted or was. A path inside of it is a conflict: somebody who writes it means what is there.
func (a *app) whole(ctx context.Context, c *client.Client, name string) (string, error) {
	if !api.IsPath(name) {
		return name, nil
	}
	ws, err := c.Locate(ctx, api.LocateRequest{Access: a.access(), Path: name})
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if ws.State == api.Unmounted || path == ws.Mountpoint || mountRoot(path) {
		return ws.ID, nil
	}
	return "", failure(api.ErrConflict, "conflict: %s is a part of workspace %s: name that, or its mountpoint",
		quote(path), ws.ID)
}

// mountRoot reports whether all of a file system of ours is mounted at a path, by the mount table of this process: in a
// container, or after a directory was moved, a mountpoint is called otherwise than where it was made.
func mountRoot(path string) bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		left, right, _ := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if _, ours := ofSnapfs(right); ours && len(f) > 4 && f[3] == "/" && unescapeMount(f[4]) == path {
			return true
		}
	}
	return false
}
