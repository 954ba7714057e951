package main

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
)

func (a *app) umountCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "umount NAME",
		Short: "unmount a workspace",
		Long: `Unmounts workspace NAME; its contents stay. A workspace in use (a process has a file open or its working
directory inside) is a conflict. With --force it is detached at once, and programs inside get errors, in
containers that share the mount too.`,
		Example: "  snapfs umount app\n  snapfs umount app --force",
		Args:    exact("NAME"),
		Annotations: map[string]string{
			"exits": exitHelp(exitNotFound, exitConflict, exitRefused, exitUnavailable),
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *daemon.Client) error {
				ws, err := c.Unmount(cmd.Context(), sandbox.UnmountRequest{Access: a.access(), Workspace: args[0], Force: force})
				if err != nil {
					return err
				}
				return a.result(ws, line(mountedLine(ws)))
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "detach a workspace in use")
	return cmd
}
