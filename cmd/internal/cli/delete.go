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

func (a *app) destroyCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "destroy NAME...",
		Short: "destroy workspaces",
		Long: `Destroys workspaces. What was written since the last snapshot is lost. Their snapshots stay, and so
do workspaces made from them. A mounted workspace is a conflict: unmount it first, or use --force,
which does so as 'snapfs down --force' does. The files are removed in the background.

With several arguments, all that can be destroyed are destroyed. If some cannot, the exit code is
that of one of them.`,
		Example:     "  snapfs umount try-1 && snapfs destroy try-1\n  snapfs destroy try-1 try-2 --force",
		Args:        atLeastOne("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				return a.each(cmd.Context(), args, "destroyed", func(name string) error {
					if force {
						_, err := a.down(cmd.Context(), c, name, downRequest{force: true, destroy: true})
						return err
					}
					return c.Destroy(cmd.Context(), api.RefRequest{Access: a.access(), Ref: name})
				})
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "end the processes that use a workspace, and unmount it before")
	return cmd
}

func atLeastOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("missing %s", name)
		}
		return nil
	}
}
