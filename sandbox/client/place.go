package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// A path means something only where it is seen: in a container a workspace is mounted elsewhere than on the host, or
// under the path of another one. So paths that name workspaces are not sent. The client looks them up, by the number of
// the file system there, and sends the name of the workspace that has it.

// callAt is call for a request that names objects, also by paths: refs are its fields that do.
func callAt[Res any](
	ctx context.Context, c *Client, name string, request any, a api.Access, to sink, refs ...*string,
) (result Res, err error) {
	for _, ref := range refs {
		if err := c.place(ctx, a, ref); err != nil {
			return result, err
		}
	}
	result, err = call[Res](ctx, c, name, request, to)
	if errors.Is(err, api.ErrNotFound) {
		for _, ref := range refs {
			if *ref != "" && !api.IsPath(*ref) && strings.Contains(err.Error(), api.Quoted(*ref)) && exists("./"+*ref) {
				return result, fmt.Errorf("%w; for what has this name here, write ./%s", err, *ref)
			}
		}
	}
	return result, err
}

// place puts the name of a workspace into a reference in the place of a path. A path that does not exist may be where a
// workspace was mounted. Else it stays, for the daemon to refuse it: it may be a name that an earlier version gave.
func (c *Client) place(ctx context.Context, a api.Access, ref *string) error {
	path, after := cutPath(*ref)
	if !api.IsPath(path) {
		return nil
	}
	w, err := c.Locate(ctx, api.LocateRequest{Access: a, Path: path})
	if errors.Is(err, api.ErrNotFound) && !exists(path) {
		return nil
	}
	if err != nil {
		return err
	}
	*ref = w.ID + after
	return nil
}

// applyTarget makes a path to which something is applied the name of the workspace that is mounted there, or the absolute
// path of a directory, with its number.
func (c *Client) applyTarget(ctx context.Context, r *api.ApplyRequest) error {
	if !api.IsPath(r.To) {
		return nil
	}
	w, err := c.Locate(ctx, api.LocateRequest{Access: r.Access, Path: r.To})
	if !exists(r.To) { // a workspace may have been mounted there
		if errors.Is(err, api.ErrNotFound) {
			err = fmt.Errorf("%w: directory %s does not exist", api.ErrNotFound, api.Quoted(r.To))
		}
		if err == nil {
			r.To = w.ID
		}
		return err
	}
	switch {
	case err == nil && (w.State != api.Unmounted || emptyDir(r.To)):
		r.To = w.ID
		return nil
	case err != nil && !errors.Is(err, api.ErrNotFound) && !errors.Is(err, api.ErrConflict):
		return err
	}
	at, err := here(r.To)
	if err != nil {
		return err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(at.Path, &st); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: directory %s does not exist: what is there is a link to nothing", api.ErrNotFound, api.Quoted(r.To))
	} else if err != nil {
		return fmt.Errorf("%s: %w", api.Quoted(at.Path), err)
	}
	r.To, r.Inode = at.Path, fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	return nil
}

// emptyDir reports whether a path is that of a directory in which nothing is.
func emptyDir(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// cutPath divides a reference that begins with a path: the path of something that is there, if one is, and what is after
// it, with the colon.
func cutPath(ref string) (path, after string) {
	if exists(ref) {
		return ref, ""
	}
	for i := range ref {
		if ref[i] == ':' && exists(ref[:i]) {
			return ref[:i], ref[i:]
		}
	}
	if workspace, snapshot, ok := api.SplitRef(ref); ok {
		return workspace, ":" + snapshot
	}
	return ref, ""
}

// filePlace names in a request for files the workspace in the place of a path of this host, which ends where the
// reference does or before a colon. A path alone is also that of the file in the workspace.
func (c *Client) filePlace(ctx context.Context, r *api.FilesRequest) error {
	if r.Path != "" {
		return nil
	}
	if !exists(r.Ref) {
		if path, _ := cutPath(r.Ref); exists(path) {
			return c.place(ctx, r.Access, &r.Ref)
		}
		if ref, path, ok := api.SplitPlace(r.Ref); ok { // what is before may be where a workspace was mounted
			r.Ref, r.Path = ref, path
		}
		return nil
	}
	at, err := here(r.Ref)
	if err != nil {
		return err
	}
	r.Path = "/" + inMount(at)
	return nil
}

// inMount is the path of a file in the file system that it is in, without a slash before it; "" for its root, and if it
// cannot be told.
func inMount(at api.LocateRequest) (path string) {
	best := -1
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return fmt.Sprintf("%d:%d", m.Major, m.Minor) != at.Device, false
	})
	if err != nil {
		return ""
	}
	for _, m := range mounts {
		rel, err := filepath.Rel(m.Mountpoint, at.Path)
		if err == nil && filepath.IsLocal(rel) && len(m.Mountpoint) >= best {
			best, path = len(m.Mountpoint), strings.TrimPrefix(filepath.Join(m.Root, rel), "/")
		}
	}
	return path
}

// sourceRef gives the source of a new workspace if it is PATH:NAME: a path alone is that of a directory or a file.
func sourceRef(r *api.CreateRequest) []*string {
	if _, _, ok := api.SplitRef(r.Source); ok && !exists(r.Source) {
		return []*string{&r.Source}
	}
	return nil
}

// exists reports whether a reference is a path of something, be it a mount whose server is gone.
func exists(path string) bool {
	if !api.IsPath(path) {
		return false
	}
	_, err := os.Lstat(path)
	return err == nil || errors.Is(err, syscall.ENOTCONN)
}

// here describes a path as this process sees it.
func here(path string) (api.LocateRequest, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return api.LocateRequest{}, fmt.Errorf("%w: %s: %w", api.ErrInvalid, api.Quoted(path), err)
	}
	r := api.LocateRequest{Path: abs, Namespace: mountNamespace()}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		r.Path = real
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		r.Path = filepath.Join(dir, filepath.Base(abs))
	}
	var st syscall.Stat_t
	switch err := syscall.Stat(abs, &st); {
	case err == nil:
		r.Device = device(st.Dev)
		if st.Mode&syscall.S_IFMT != syscall.S_IFDIR { // files of an overlay have other numbers than it
			r.Device = cmp.Or(mountDevice(abs), r.Device)
		}
	case errors.Is(err, syscall.ENOTCONN), errors.Is(err, fs.ErrNotExist):
		r.Device = noDevice // a mount whose server is gone, or a directory that is: the path is all that there is
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG):
		return r, fmt.Errorf("%w: %s: %w", api.ErrNotFound, api.Quoted(abs), err)
	default:
		return r, fmt.Errorf("%s: %w", api.Quoted(abs), err)
	}
	return r, nil
}

// noDevice is the number of no file system that is mounted.
const noDevice = "0:0"

// device spells the number of a file system as /proc/self/mountinfo does (makedev(3)).
func device(dev uint64) string {
	major := dev>>8&0xfff | dev>>32&^0xfff
	minor := dev&0xff | dev>>12&^0xff&0xffffffff
	return strconv.FormatUint(major, 10) + ":" + strconv.FormatUint(minor, 10)
}

// mountDevice is the number of the file system that is mounted where a path leads; "" if it cannot be told.
func mountDevice(path string) string {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st)
	if err != nil || st.Mask&unix.STATX_MNT_ID == 0 {
		return ""
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		found := uint64(m.ID) == st.Mnt_id
		return !found, found
	})
	if err != nil || len(mounts) == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", mounts[0].Major, mounts[0].Minor)
}

// mountNamespace is the number of the mount namespace of this process, 0 if it cannot be told.
func mountNamespace() uint64 {
	link, err := os.Readlink("/proc/self/ns/mnt") // mnt:[4026531841]
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.Trim(link, "mnt:[]"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
