package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) mountCommand() *cobra.Command {
	var options mountOptions
	var all bool
	cmd := &cobra.Command{
		Use:   "mount NAME|SNAP [MOUNTPOINT]",
		Short: "show a workspace, or a snapshot read-only, at a directory",
		Long: `Mounts workspace NAME on the directory MOUNTPOINT. Without MOUNTPOINT, mounts it where it was
mounted last. The last element of MOUNTPOINT is created if it is missing, and removed again if
mounting fails.

With --read-only (or -o ro), mounts snapshot SNAP on MOUNTPOINT, as many times as wanted at once, each
with options of its own. Such a view is gone when its mount ends: 'snapfs umount MOUNTPOINT', 'snapfs
down MOUNTPOINT', umount(8). It is mounted again after the daemon has ended, like workspaces, and can
be read by 'ls', 'cat', 'cp' and 'diff'. The snapshot can be deleted meanwhile: the view keeps what it
shows. 'snapfs list --all' lists views. What changes a workspace is refused: 'snapfs branch SNAP' makes
one.

A workspace has one mount at a time. If it is already mounted there with these options, nothing
changes.

The workspace is mounted in the mount namespace of this command, also inside the mount of another
workspace. With -o remount, the options of a mount that is there are changed by the others that are
given; with MOUNTPOINT, only if it is there. Of a mount that is read-only from the start, remount,rw
needs that nobody uses it.

If another mount namespace, such as a container's, still has a copy of an earlier mount of NAME, what
is mounted is a copy of that: both see the same.

A foreign tree is mounted with --nosuid and --nodev, unless --suid or --dev is given. A tree is
foreign if it comes from an image file, or from a directory on a nosuid file system, or was made
from a foreign tree. 'snapfs show' tells.

--engine says what shows the workspace, and is kept with it: a mount that names none has that of
before. A workspace that is made from it does not inherit it. The same workspace can be mounted with
either engine, one after the other.

  fuse    the daemon answers all requests. This is the default, and can do all that snapfs does
  kernel  the kernel's overlayfs merges what was changed over the layers below, which the daemon
          shows it, once for all workspaces on them. What is written, and what is read of that, does
          not reach the daemon. After a crash of the daemon, programs go on
  auto    what suits the workspace; today fuse

kernel needs root in the initial user namespace, and Linux 6.12 or later. Of a workspace that is mounted
this way:

- A snapshot is taken of what programs write meanwhile: each file in it is whole, but different
  files may be of different moments, unless it is taken with --consistent.
- 'snapfs rollback' unmounts and mounts again, and is refused while programs use the mount.
- Refused are quotas, 'snapfs pause', --track-reads, and 'snapfs apply' to it.
- Of a file with hard links that is in a layer below, the names part when one of them is written, as
  with overlayfs everywhere (index=off).`,
		Example: `  snapfs mount app /mnt/app
  snapfs mount app /mnt/app -o ro,nosuid
  snapfs mount --read-only app:built /mnt/built
  snapfs mount app -o remount,rw
  snapfs mount app /mnt/app --engine kernel
  snapfs mount --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return exact()(cmd, args)
			}
			return between(1, "NAME or SNAP", "MOUNTPOINT")(cmd, args)
		},
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.check(true); err != nil {
				return err
			}
			if all {
				return a.mountAll(cmd, options)
			}
			mountpoint := "" // the daemon knows the previous one
			if len(args) == 2 {
				var err error
				if mountpoint, err = absolute("mountpoint", args[1]); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				r := api.MountRequest{
					Access: a.access(), Workspace: args[0], Mountpoint: mountpoint, MakeMountpoint: true,
					MountOptions: options.MountOptions,
				}
				if options.remount {
					r.Remount = options.changes(cmd)
					if len(r.Remount) == 0 {
						return usagef("remount needs another option, such as ro or rw")
					}
				}
				ws, err := a.mount(cmd.Context(), c, r)
				if err != nil {
					return err
				}
				return a.result(ws, line(mountedLine(ws)))
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "mount all workspaces of the session that were mounted before")
	mountFlags(cmd, &options)
	return cmd
}

// mountAll mounts the workspaces that have been mounted before, where they were.
func (a *app) mountAll(cmd *cobra.Command, options mountOptions) error {
	if options.remount {
		return usagef("--all excludes remount")
	}
	return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
		args, err := a.mountedBefore(cmd.Context(), c)
		if err != nil {
			return err
		}
		a.remains = "those that were mounted before stay mounted"
		return eachOf(cmd.Context(), a, args, "workspaces", func(name string) (api.Workspace, error) {
			return a.mount(cmd.Context(), c, api.MountRequest{
				Access: a.access(), Workspace: name, MakeMountpoint: true, MountOptions: options.MountOptions,
			})
		}, mountedLine)
	})
}

// mount mounts a workspace, and makes sure that this process sees it: a daemon of an earlier version mounts in its own
// mount namespace. What was mounted before stays.
func (a *app) mount(ctx context.Context, c *client.Client, r api.MountRequest) (api.Workspace, error) {
	own := c.DaemonVersion() == a.Version || len(r.Remount) > 0
	if !own {
		o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: r.Workspace})
		own = err == nil && o.Workspace != nil && o.Workspace.State != api.Unmounted
	}
	ws, err := c.Mount(ctx, r)
	if err != nil || own || shows(ws) {
		return ws, err
	}
	_, err = c.Unmount(ctx, api.UnmountRequest{Access: a.access(), Workspace: ws.ID})
	return ws, errors.Join(failure(api.ErrUnavailable, "workspace %s was mounted at %s in the mount namespace of the "+
		"daemon, which is another one than that of this command: restart the daemon with this version of snapfs",
		ws.ID, quote(ws.Mountpoint)), err)
}

// shows reports whether a workspace is in the mount table of this process, or that cannot be read. One that was renamed
// while it was mounted has its earlier name there.
func shows(ws api.Workspace) bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(text)) {
		left, right, _ := strings.Cut(line, " - ")
		f := strings.Fields(left)
		if source, ok := ofSnapfs(right); ok && (source == ws.ID || len(f) > 4 && unescapeMount(f[4]) == ws.Mountpoint) {
			return true
		}
	}
	return false
}

// mountable refuses a mountpoint that cannot work, before a workspace is created for it.
func mountable(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(path))
		if errors.Is(err, fs.ErrNotExist) {
			return failure(api.ErrNotFound, "mountpoint %s: its parent does not exist", quote(path))
		}
	}
	if err != nil {
		return nil // a dead mount, perhaps an earlier one of this workspace: the daemon decides
	}
	if !info.IsDir() {
		return usagef("mountpoint %s is not a directory", quote(path))
	}
	return nil
}
