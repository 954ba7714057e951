package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) deleteCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete SNAP...",
		Short: "delete snapshots",
		Long: `Deletes snapshots. Workspaces and snapshots made from them are not affected. To delete an id that is
already deleted is not an error; an unknown name is. The space is returned by 'snapfs gc', or later
in the background.

With several arguments, all that can be deleted are deleted. If some cannot, the exit code is that
of one of them.`,
		Example:     "  snapfs delete app:before-upgrade\n  snapfs delete 0199d5a4 0199d5b0",
		Args:        atLeastOne("SNAP"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				return a.each(cmd.Context(), args, "deleted", func(ref string) error {
					return c.Delete(cmd.Context(), api.RefRequest{Access: a.access(), Ref: ref})
				})
			})
		},
	}
}

func atLeastOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("missing %s", name)
		}
		return nil
	}
}
