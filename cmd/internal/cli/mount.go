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
		Long: `Mounts workspace NAME on the directory MOUNTPOINT. Its last element is made if it is missing, and removed again if
mounting fails. Without MOUNTPOINT: where it was mounted last. A workspace is mounted once at a time; asking again for
what is there already changes nothing.

A tree that comes from elsewhere (an image file, a directory on a nosuid file system, and what was made from them;
'snapfs show' says foreign) is mounted --nosuid and --nodev, unless --suid or --dev say otherwise.`,
		Example: "  snapfs mount app /mnt/app\n  snapfs mount app /mnt/app --read-only --nosuid",
		Args:    between(1, "NAME", "MOUNTPOINT"),
		Annotations: map[string]string{
			"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkMount(options); err != nil {
				return err
			}
			mountpoint := "" // the daemon knows the last one
			if len(args) == 2 {
				var err error
				if mountpoint, err = absolute("mountpoint", args[1]); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				ws, err := c.Mount(cmd.Context(), api.MountRequest{
					Access: a.access(), Workspace: args[0], Mountpoint: mountpoint, MakeMountpoint: true, MountOptions: options,
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

// mountable refuses early, before a workspace is made for it, a mountpoint that cannot work.
func mountable(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(filepath.Dir(path))
		if errors.Is(err, fs.ErrNotExist) {
			return failure(api.ErrNotFound, "mountpoint %s: its parent does not exist", quote(path))
		}
	}
	if err != nil {
		return nil // a dead mount, perhaps our own of before: the daemon judges it
	}
	if !info.IsDir() {
		return usagef("mountpoint %s is not a directory", quote(path))
	}
	return nil
}
