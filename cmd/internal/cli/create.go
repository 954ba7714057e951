package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) createCommand() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "create NAME [--from SRC]",
		Short: "create a workspace",
		Long: `Creates workspace NAME, without mounting it, and prints its name.

SRC is what the workspace starts from: a directory, which is read once and stored; a squashfs image file, named *.sqsh,
*.squashfs or *.sqfs; or a snapshot. A word that names an existing file, or has a slash, is a path. Without --from the
workspace is empty. What comes from an image is mounted nosuid and nodev unless asked otherwise: see 'snapfs mount'.

A NAME that is taken is a conflict; nothing is changed then.`,
		Example: "  snapfs create app --from ./app\n  snapfs create app2 --from base.sqsh",
		Args:    exact("NAME"),
		Annotations: map[string]string{
			"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			src, err := source(cmd, from)
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), anyHome, func(c *client.Client) error {
				meter := a.newMeter()
				ws, err := c.Create(cmd.Context(), api.CreateRequest{
					Access: a.access(), Name: args[0], Source: src, Progress: meter.report(),
				})
				meter.done()
				if err != nil {
					return err
				}
				return a.result(ws, line(ws.ID))
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`SRC`: directory, image file or snapshot")
	return cmd
}
