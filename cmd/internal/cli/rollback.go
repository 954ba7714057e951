package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) rollbackCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rollback NAME SNAP",
		Short: "set a workspace back to a snapshot, in place",
		Long: `Sets workspace NAME back to the state of a snapshot, mounted or not. What was written since is lost,
unless another snapshot has it: changed files are as they were, and new files are gone.

Programs in the workspace see the change at once. Files that they have open stay usable as they
were, apart from the tree, until they are closed.

A paused workspace stays paused. A workspace that is mounted read-only is a conflict.`,
		Example:     "  snapfs rollback app before-upgrade",
		Args:        exact("NAME", "SNAP"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				ws, err := c.Rollback(cmd.Context(),
					api.RollbackRequest{Access: a.access(), Workspace: args[0], Snapshot: args[1]})
				if err != nil {
					return err
				}
				a.note("%s is at snapshot %s", ws.ID, ws.Head)
				return a.result(ws, line(ws.Head))
			})
		},
	}
}
