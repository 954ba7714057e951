package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) upCommand() *cobra.Command {
	var from string
	var options api.MountOptions
	cmd := &cobra.Command{
		Use:   "up NAME MOUNTPOINT [--from SRC]",
		Short: "create a workspace if it is missing, and mount it",
		Long: `The one-line start. Creates workspace NAME from SRC if there is none of that name, and mounts it. SRC is as in
'snapfs create'; it is not looked at when the workspace is there already. The last element of MOUNTPOINT is made if it
is missing. A workspace whose own data are lost, or that was destroyed, comes back in the state of its newest snapshot,
unless there is none, or --from says otherwise; --json tells which: same, restored or fresh. Where the workspace is
mounted on MOUNTPOINT already, nothing changes.

If mounting fails, a workspace or directory that this call made is removed again.`,
		Example: "  snapfs up app /mnt/app --from ~/src/app\n  snapfs up scratch /mnt/scratch",
		Args:    exact("NAME", "MOUNTPOINT"),
		Annotations: map[string]string{
			"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkMount(options); err != nil {
				return err
			}
			mountpoint, err := absolute("mountpoint", args[1])
			if err != nil {
				return err
			}
			if err := mountable(mountpoint); err != nil {
				return err
			}
			src, err := source(cmd, from)
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), anyHome, func(c *client.Client) error {
				return a.up(cmd.Context(), c, args[0], src, api.MountRequest{
					Access: a.access(), Workspace: args[0], Mountpoint: mountpoint, MakeMountpoint: true, MountOptions: options,
				})
			})
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`SRC` of a new workspace: directory, image file or snapshot; empty without it")
	mountFlags(cmd, &options)
	return cmd
}

// up creates where needed and mounts.
func (a *app) up(ctx context.Context, c *client.Client, name, src string, mount api.MountRequest) error {
	meter := a.newMeter()
	up, err := c.Up(ctx, api.UpRequest{CreateRequest: api.CreateRequest{
		Access: a.access(), Name: name, Source: src, Progress: meter.report(),
	}})
	meter.done()
	if err != nil {
		return err
	}
	switch {
	case up.How == api.Same && src != "":
		a.note("workspace %s is there already; --from is not looked at", name)
	case up.How == api.Restored:
		a.note("workspace %s was lost: it is at snapshot %s", name, up.Head)
	}
	ws, err := c.Mount(ctx, mount)
	if err != nil {
		if up.How == api.Fresh {
			err = errors.Join(err, a.takeBack(ctx, c, name))
		}
		return err
	}
	up.Workspace = ws
	return a.result(up, line(mountedLine(ws)))
}

// undoTimeout bounds the removal of what an interrupted or failed verb made.
const undoTimeout = 30 * time.Second

// takeBack destroys a workspace that a failing verb had made, whatever happened to its context.
func (a *app) takeBack(ctx context.Context, c api.API, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if err := c.Destroy(ctx, api.RefRequest{Access: a.access(), Ref: name}); err != nil && !errors.Is(err, api.ErrNotFound) {
		a.remains = fmt.Sprintf("workspace %s is left, remove it with '%s'", name, a.hint("destroy "+name))
		return fmt.Errorf("%s: %w", a.remains, err)
	}
	return nil
}
