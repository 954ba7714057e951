package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) rollbackCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rollback NAME SNAP",
		Short: "move a workspace back to a snapshot, in place",
		Long: `Gives workspace NAME the state of a snapshot, mounted or not. What was written since is gone, unless another
snapshot has it: files changed since are as they were, files made since are not there any more. Programs in the workspace
see the change at once; what they have open stays as it was for them, apart from the tree, until they close it. A paused workspace stays paused; one that
is mounted read-only is a conflict.`,
		Example:     "  snapfs rollback app before-upgrade",
		Args:        exact("NAME", "SNAP"),
		Annotations: map[string]string{"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable)},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				ws, err := c.Rollback(cmd.Context(), api.RollbackRequest{Access: a.access(), Workspace: args[0], Snapshot: args[1]})
				if err != nil {
					return err
				}
				a.note("%s is at snapshot %s", ws.ID, ws.Head)
				return a.result(ws, line(ws.Head))
			})
		},
	}
}
