package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) pauseCommand() *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use:   "pause NAME...",
		Short: "hold the changes of workspaces back",
		Long: `Holds every change of workspace NAME back until 'snapfs resume'. A workspace that is paused already
is a conflict.

The containers that have NAME mounted, all processes in them, are frozen; with --cgroup, the processes
of that control group instead, which the workspace remembers. Neither the group of snapfs nor that of
the caller is frozen. Other processes wait inside their next write, where no signal reaches them: they cannot be killed
until 'snapfs resume', not even by SIGKILL.

Snapshots, forks and rollbacks of a paused workspace work. A fork of it is paused, too. After a
rollback, programs may see the old names until 'snapfs resume'. The workspace stays paused when it
is unmounted and when the daemon ends.`,
		Example:     "  snapfs pause app && snapfs rollback app base && snapfs resume app",
		Args:        atLeastOne("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := api.PauseRequest{Access: a.access()}
			if group != "" {
				var err error
				if r.Cgroup, err = absolute("cgroup", group); err != nil {
					return err
				}
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				return eachOf(cmd.Context(), a, args, "workspaces", func(name string) (api.Workspace, error) {
					r.Workspace = name
					return c.Pause(cmd.Context(), r)
				}, func(ws api.Workspace) string { return ws.ID + " is paused" })
			})
		},
	}
	cmd.Flags().StringVar(&group, "cgroup", "", "freeze the processes of the control group at `DIR`")
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume NAME...",
		Short: "resume paused workspaces",
		Long: `Resumes paused workspace NAME: its changes proceed, and the processes of its control group run
again. A workspace that is not paused is a conflict.`,
		Example:     "  snapfs resume app",
		Args:        atLeastOne("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				return eachOf(cmd.Context(), a, args, "workspaces", func(name string) (api.Workspace, error) {
					return c.Resume(cmd.Context(), api.RefRequest{Access: a.access(), Ref: name})
				}, func(ws api.Workspace) string { return ws.ID + " is running" })
			})
		},
	}
}
