package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) umountCommand() *cobra.Command {
	var force, all bool
	cmd := &cobra.Command{
		Use:   "umount NAME...",
		Short: "unmount workspaces",
		Long: `Unmounts workspaces, and views of snapshots. Contents stay. One that is not mounted stays as it is. A
directory that was made for the mount is removed, unless something is in it.

A workspace in use is a conflict: a process has a file open, or its working directory, inside. With
--force the workspace is unmounted at once, and programs inside get errors, also in containers that
share the mount. 'snapfs down --force' ends the programs, too.

A container that was started while the workspace was mounted may hold a copy of the mount. The
workspace is then "detached": unmounted here, still in use there, until the container ends or
--force is given.

What fails for one of several workspaces does not stop the others; the exit code is that of one that
failed.`,
		Example:     "  snapfs umount app\n  snapfs umount app --force\n  snapfs umount --all",
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := namesOrAll(args, all); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				if all {
					var err error
					if args, err = a.allOf(cmd.Context(), c, api.Mounted, api.Detached); err != nil {
						return err
					}
				}
				return eachOf(cmd.Context(), a, args, "workspaces", func(name string) (api.Workspace, error) {
					return a.umount(cmd.Context(), c, name, force)
				}, mountedLine)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "unmount a workspace that is in use")
	cmd.Flags().BoolVar(&all, "all", false, "unmount all workspaces and views of the session")
	return cmd
}
