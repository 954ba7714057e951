package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) umountCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "umount NAME",
		Short: "unmount a workspace",
		Long: `Unmounts workspace NAME. Its contents stay. If it is not mounted, nothing changes.

A workspace in use is a conflict: a process has a file open, or its working directory, inside. With
--force the workspace is unmounted at once, and programs inside get errors, also in containers that
share the mount.

A container that was started while the workspace was mounted may hold a copy of the mount. The
workspace is then "detached": unmounted here, still in use there, until the container ends or
--force is given.`,
		Example:     "  snapfs umount app\n  snapfs umount app --force",
		Args:        exact("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				ws, err := c.Unmount(cmd.Context(),
					api.UnmountRequest{Access: a.access(), Workspace: args[0], Force: force})
				if errors.Is(err, api.ErrConflict) {
					// It is unmounted already, as after a kill of the daemon: that is what was asked for.
					o, showErr := c.Show(cmd.Context(), api.RefRequest{Access: a.access(), Ref: args[0]})
					if showErr == nil && o.Workspace != nil && o.Workspace.State == api.Unmounted {
						ws, err = *o.Workspace, nil
					}
				}
				if err != nil {
					return err
				}
				if ws.State == api.Detached {
					a.note("another mount namespace, such as a container's, holds a copy of the mount; '%s' ends it",
						a.hint("umount --force "+ws.ID))
				}
				return a.result(ws, line(mountedLine(ws)))
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "unmount a workspace that is in use")
	return cmd
}
