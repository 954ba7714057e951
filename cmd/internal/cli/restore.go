package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) restoreCommand() *cobra.Command {
	tree := extraction{}
	cmd := a.derive("restore SNAP [MOUNTPOINT | --to DIR]", "make a new workspace or a directory with a snapshot's state",
		`Makes a new workspace whose tree is exactly what the snapshot froze, and prints its name: that of
--name, or {origin}-restored-{short}. With MOUNTPOINT the workspace is mounted there. The origin is
not changed.

`+extractHelp,
		"  snapfs restore app:before-upgrade /mnt/before\n  snapfs restore 0199 --name old\n  snapfs restore before-upgrade --to ./before",
		func(c *client.Client) deriveFunc { return c.Restore })
	mount := cmd.RunE
	tree.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if given, err := tree.check(cmd, args, append(mountFlagNames, "name", "size", "inodes")...); err != nil {
			return err
		} else if given {
			return tree.run(a, cmd, args[0], api.Part{})
		}
		return mount(cmd, args)
	}
	return cmd
}

func (a *app) branchCommand() *cobra.Command {
	return a.derive("branch SNAP [MOUNTPOINT]", "make a new workspace on top of a snapshot",
		`Makes a new workspace on top of a snapshot, to continue from there, and prints its name: that of
--name, or {origin}-branch-{short}. With MOUNTPOINT the workspace is mounted there.

Any number of branches share the data of the snapshot. What one branch writes, no other sees. To
claim a prepared snapshot for a task, branch it: the tree is complete when the command returns.`,
		"  snapfs branch base /mnt/try-1 --name try-1\n  snapfs branch base /mnt/try-2 --name try-2",
		func(c *client.Client) deriveFunc { return c.Branch })
}

func (a *app) forkCommand() *cobra.Command {
	return a.derive("fork NAME [MOUNTPOINT]", "make a new workspace from the current state of another",
		`Makes a new workspace from what workspace NAME holds now, and prints its name: that of --name, or
{origin}-fork-{short}. With MOUNTPOINT the workspace is mounted there. No snapshot is
listed for it. NAME is not changed. The fork of a paused workspace is paused.`,
		"  snapfs fork app /mnt/app-2",
		func(c *client.Client) deriveFunc {
			return func(ctx context.Context, r api.RestoreRequest) (api.Workspace, error) {
				return c.Fork(ctx, api.ForkRequest{
					Access: r.Access, Quota: r.Quota, Workspace: r.Snapshot, Name: r.Name, Mountpoint: r.Mountpoint,
					MakeMountpoint: r.MakeMountpoint,
					MountOptions:   r.MountOptions,
				})
			}
		})
}

type deriveFunc func(context.Context, api.RestoreRequest) (api.Workspace, error)

// derive builds the three verbs that make a workspace from a snapshot or another workspace.
func (a *app) derive(use, short, long, example string, verb func(*client.Client) deriveFunc) *cobra.Command {
	var options mountOptions
	var r api.RestoreRequest
	var name string
	_, _ = fmt.Sscanf(use, "%s %s", new(string), &name) // SNAP or NAME
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Long: long + `

The last element of MOUNTPOINT is created if it is missing. If mounting fails, neither the workspace
nor the directory is left. A MOUNTPOINT without a slash must exist: it could be meant as a name.`,
		Example:     example,
		Args:        between(1, name, "MOUNTPOINT"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.check(false); err != nil {
				return err
			}
			if cmd.Flags().Changed("name") && r.Name == "" {
				return usagef("empty --name")
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				r.Access, r.Snapshot, r.MountOptions, r.MakeMountpoint = a.access(), args[0], options.MountOptions, true
				if len(args) == 2 {
					if err := directory(args[1]); err != nil {
						return err
					}
					var err error
					if r.Mountpoint, err = absolute("mountpoint", args[1]); err != nil {
						return err
					}
				}
				ws, err := verb(c)(cmd.Context(), r)
				if err != nil {
					return err
				}
				if ws.State == api.Mounted {
					a.note("%s", mountedLine(ws))
				}
				return a.result(ws, line(ws.ID))
			})
		},
	}
	cmd.Flags().StringVar(&r.Name, "name", "", "`NAME` of the new workspace (default: made from the origin's)")
	quotaFlags(cmd, &r.Quota)
	mountFlags(cmd, &options)
	return cmd
}

// directory refuses a word that is neither a path nor a directory here: somebody may mean the name of the new workspace.
func directory(word string) error {
	if word == "" || api.IsPath(word) {
		return nil
	}
	if info, err := os.Stat(word); err == nil && info.IsDir() {
		return nil
	}
	return usagef("%s is no directory here: for a new workspace of that name write --name %s, for a new directory ./%s",
		quote(word), shellWord(word), shellWord(word))
}
