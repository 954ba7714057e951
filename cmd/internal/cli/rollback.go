package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) rollbackCommand() *cobra.Command {
	var r api.RollbackRequest
	cmd := &cobra.Command{
		Use:   "rollback NAME SNAP",
		Short: "set a workspace back to a snapshot, in place",
		Long: `Sets workspace NAME back to the state of a snapshot, mounted or not: changed files are as they were,
and new files are gone. What no snapshot has of the workspace is kept as a snapshot without a name,
which expires after 24 hours. Its id is printed; 'snapfs rollback NAME ID' brings it back. With
--discard it is lost.

SNAP is a snapshot of NAME, or one on which NAME was made. Another one is a conflict, unless
--foreign is given. A name alone means a snapshot of NAME, if it has one of that name.

Programs in the workspace see the change at once. Files that they have open stay usable as they
were, apart from the tree, until they are closed. What the kernel engine shows is unmounted and
mounted again: while programs, or copies of the mount, would keep the old tree, that is a conflict
that names them. With --force it is left to them until they end: they read and write it, and what
they write from then on is lost.

A paused workspace stays paused. A workspace that is mounted read-only is a conflict.`,
		Example:     "  snapfs rollback app before-upgrade\n  snapfs rollback app before-upgrade --discard",
		Args:        exact("NAME", "SNAP"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				r.Access, r.Workspace, r.Snapshot = a.access(), args[0], args[1]
				ws, err := c.Rollback(cmd.Context(), r)
				if err != nil {
					return err
				}
				a.note("%s is at snapshot %s", ws.ID, ws.Head)
				if ws.Kept != nil {
					a.note("what was unsaved is snapshot %s until %s; '%s' brings it back",
						ws.Kept.ID, moment(*ws.Kept.ExpiresAt), a.hint("rollback "+ws.ID+" "+ws.Kept.ID))
				}
				return a.result(ws, line(ws.Head))
			})
		},
	}
	cmd.Flags().BoolVar(&r.Foreign, "foreign", false, "also to a snapshot that is not of the history of NAME")
	cmd.Flags().BoolVar(&r.Discard, "discard", false, "do not keep what no snapshot has")
	cmd.Flags().BoolVar(&r.Force, "force", false, forceAside)
	return cmd
}

// forceAside is the help of --force of commands that move a workspace in place.
const forceAside = "kernel engine: leave the old tree to programs that use it"
