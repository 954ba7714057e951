package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) mountCommand() *cobra.Command {
	var options api.MountOptions
	cmd := &cobra.Command{
		Use:   "mount NAME [MOUNTPOINT]",
		Short: "show a workspace at a directory",
		Long: `Mounts workspace NAME on the directory MOUNTPOINT. Without MOUNTPOINT, mounts it where it was
mounted last. The last element of MOUNTPOINT is created if it is missing, and removed again if
mounting fails.

A workspace has one mount at a time. If it is already mounted there with these options, nothing
changes.

A foreign tree is mounted with --nosuid and --nodev, unless --suid or --dev is given. A tree is
foreign if it comes from an image file, or from a directory on a nosuid file system, or was made
from a foreign tree. 'snapfs show' tells.`,
		Example:     "  snapfs mount app /mnt/app\n  snapfs mount app /mnt/app --read-only --nosuid",
		Args:        between(1, "NAME", "MOUNTPOINT"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkMount(options); err != nil {
				return err
			}
			mountpoint := "" // the daemon knows the previous one
			if len(args) == 2 {
				var err error
				if mountpoint, err = absolute("mountpoint", args[1]); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				ws, err := c.Mount(cmd.Context(), api.MountRequest{
					Access: a.access(), Workspace: args[0], Mountpoint: mountpoint, MakeMountpoint: true,
					MountOptions: options,
				})
				if err != nil {
					return err
				}
				return a.result(ws, line(mountedLine(ws)))
			})
		},
	}
	mountFlags(cmd, &options)
	return cmd
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
