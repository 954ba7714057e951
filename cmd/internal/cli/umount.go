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
		Long: `Unmounts workspace NAME; its contents stay. A workspace that is not mounted stays as it is. One in use (a process has
a file open or its working directory inside) is a conflict. With --force it is detached at once, and programs inside
get errors, in containers that share the mount too.

A container that was started while the workspace was mounted may hold a copy of the mount. Then the workspace is
detached afterwards: gone here, in use there, until the container ends or --force is given.`,
		Example: "  snapfs umount app\n  snapfs umount app --force",
		Args:    exact("NAME"),
		Annotations: map[string]string{
			"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				ws, err := c.Unmount(cmd.Context(), api.UnmountRequest{Access: a.access(), Workspace: args[0], Force: force})
				if errors.Is(err, api.ErrConflict) {
					// What is unmounted already, as after a kill of the daemon, is as it was wanted.
					o, showErr := c.Show(cmd.Context(), api.RefRequest{Access: a.access(), Ref: args[0]})
					if showErr == nil && o.Workspace != nil && o.Workspace.State == api.Unmounted {
						ws, err = *o.Workspace, nil
					}
				}
				if err != nil {
					return err
				}
				if ws.State == api.Detached {
					a.note("another mount namespace, such as a container's, holds a copy of its mount; '%s' ends it", a.hint("umount --force "+ws.ID))
				}
				return a.result(ws, line(mountedLine(ws)))
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "detach a workspace in use")
	return cmd
}
