package cli

import (
	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) createCommand() *cobra.Command {
	var from, wait, platform, engine string
	var expired bool
	var part api.Part
	var quota api.Quota
	cmd := &cobra.Command{
		Use:   "create NAME [--from SRC] [-- PATH...]",
		Short: "create a workspace",
		Long: `Creates workspace NAME and prints its name. The workspace is not mounted.

SRC is what the workspace starts from. Without --from it is empty. SRC is one of:

` + sourceHelp + `

A SRC that names an existing file, or contains a slash, is a path. A tree from an image or a tar file
is mounted nosuid and nodev by default: see 'snapfs mount'.

Of a container image, each layer becomes a layer of the store: images that share layers have them
once. All digests are verified. Its configuration is kept for 'snapfs export'.

If NAME is taken, that is a conflict and nothing is changed.

` + importHelp + `

Of a directory, a part can be taken.
` + partHelp,
		Example: "  snapfs create app --from ./app\n  snapfs create app3 --from ./app --gitignore --exclude .git\n  snapfs create app2 --from base.sqsh\n" +
			"  snapfs create app4 --from docker-archive:app.tar",
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			args, part.Paths = partArgs(cmd, args)
			if err := checkEngine(engine); err != nil {
				return err
			}
			imported, err := waitImported(wait)
			if err != nil {
				return err
			}
			src, err := source(cmd, from)
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), anyHome, func(c *client.Client) error {
				if err := a.onlyOne(cmd.Context(), c, from, src); err != nil {
					return err
				}
				meter := a.newMeter()
				ws, err := c.Create(cmd.Context(), api.CreateRequest{
					Access: a.access(), Part: part, Quota: quota, Name: args[0], Source: src, WaitImported: imported,
					Expired: expired, Platform: platform, Engine: engine, Progress: meter.report(),
				})
				meter.done()
				if err != nil {
					return err
				}
				return a.result(ws, line(ws.ID))
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "",
		"`SRC` of the workspace: directory, image file, container image or snapshot (default: empty)")
	platformFlag(cmd, &platform)
	waitFlag(cmd, &wait)
	cmd.Flags().BoolVar(&expired, "expired", false, "take a backup that has expired, too")
	engineFlag(cmd, &engine)
	quotaFlags(cmd, &quota)
	partFlags(cmd, &part, exact("NAME"))
	return cmd
}
