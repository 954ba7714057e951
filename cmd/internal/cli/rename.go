package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) renameCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rename OLD NEW",
		Short: "give a workspace or a snapshot another name",
		Long: `Gives a workspace or a snapshot another name. OLD is a workspace or a snapshot, NEW a name alone. A
name that is taken is a conflict.

A workspace may be mounted. Its snapshots go with it: app:built becomes NEW:built, and refs with the
old name still name them. 'snapfs log NEW' begins with the renaming; 'snapfs log OLD' has what was
before. The table of mounts shows the old name until the workspace is mounted again. Lines of
/etc/fstab are not changed.`,
		Example:     "  snapfs rename try-2 next\n  snapfs rename app:built release-1.0",
		Args:        exact("OLD", "NEW"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				o, err := c.Rename(cmd.Context(), api.RenameRequest{Access: a.access(), Ref: args[0], Name: args[1]})
				if err != nil {
					return err
				}
				return a.result(o, func(w io.Writer) error {
					name := ""
					if o.Workspace != nil {
						name = o.Workspace.ID
					} else if o.Snapshot != nil {
						name = o.Snapshot.Workspace + ":" + o.Snapshot.Name
					}
					_, err := fmt.Fprintln(w, name)
					return err
				})
			})
		},
	}
}
