package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) upCommand() *cobra.Command {
	var from, file, wait, platform string
	var options mountOptions
	var quota api.Quota
	cmd := &cobra.Command{
		Use:   "up [NAME [MOUNTPOINT]] [--from SRC]",
		Short: "create a workspace if it is missing, and mount it",
		Long: `Creates workspace NAME from SRC if no workspace has that name, and mounts it. SRC and --wait are as
in 'snapfs create'. If the workspace exists and was made from something else, that is a conflict. The
last element of MOUNTPOINT is created if it is missing. If the workspace is already mounted on
MOUNTPOINT, nothing changes but limits that are given. Without MOUNTPOINT, NAME is brought up as
snapfs.toml says, see below, or else mounted where it is or was mounted last.

A workspace whose own data are lost comes back in the state of its newest snapshot. So does one that
was destroyed, unless --from is given. --json reports what was done: same, restored or fresh.

If mounting fails, a workspace or directory that this call created is removed.

Without NAME, does this for each workspace of the snapfs.toml of this directory, or of the nearest
one above it. Paths in it are relative to it:

  [workspace.app]
  from = "."             # as --from; a snapshot if it is no path
  mountpoint = "work"    # default: the name
  options = "noatime"    # as -o; engine=kernel as --engine
  size = "10G"           # as --size; inodes likewise
  keep = { last = 10, daily = 7, older-than = "30d" }   # as 'snapfs prune', which is done now

An unknown key is an error that names its line. What fails for one workspace does not stop the
others. 'snapfs down' takes them down.`,
		Example: `  snapfs up app /mnt/app --from ~/src/app
  snapfs up scratch /mnt/scratch`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return between(1, "NAME", "MOUNTPOINT")(cmd, args)
		},
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := options.check(false); err != nil {
				return err
			}
			imported, err := waitImported(wait)
			if err != nil {
				return err
			}
			if len(args) == 2 && file != "" {
				return usagef("--file excludes MOUNTPOINT")
			}
			if len(args) < 2 {
				p, ok, err := projectOf(file, args)
				if err != nil {
					return err
				}
				if ok {
					return a.upProject(cmd, p, args, imported)
				}
			}
			r := api.CreateRequest{Source: from, WaitImported: imported, Platform: platform, Quota: quota}
			return a.upOne(cmd, args, r, options.MountOptions)
		},
	}
	cmd.Flags().StringVar(&from, "from", "",
		"`SRC` of a new workspace: directory, image file, container image or snapshot (default: empty)")
	platformFlag(cmd, &platform)
	waitFlag(cmd, &wait)
	cmd.Flags().StringVarP(&file, "file", "f", "", "the `FILE` that names the workspaces (default: snapfs.toml)")
	quotaFlags(cmd, &quota)
	mountFlags(cmd, &options)
	return cmd
}

// upOne does up for a workspace with a mountpoint, or without one where it was mounted last.
func (a *app) upOne(cmd *cobra.Command, args []string, r api.CreateRequest, options api.MountOptions) error {
	mountpoint, home := "", existingHome // "": that of before
	if len(args) == 2 {
		var err error
		if mountpoint, err = absolute("mountpoint", args[1]); err != nil {
			return err
		}
		if err := mountable(mountpoint); err != nil {
			return err
		}
		home = anyHome
	}
	from := r.Source
	var err error
	if r.Source, err = source(cmd, from); err != nil {
		return err
	}
	if mountpoint == "" {
		if _, err := os.Stat(a.home); errors.Is(err, fs.ErrNotExist) {
			return neverMounted(args[0])
		}
	}
	ctx, name := cmd.Context(), args[0]
	return a.withClient(ctx, home, func(c *client.Client) error {
		if err := a.onlyOne(ctx, c, from, r.Source); err != nil {
			return err
		}
		if mountpoint == "" {
			var err error
			if name, mountpoint, err = a.mountedLast(ctx, c, name); err != nil {
				return err
			}
		}
		r.Name = name
		up, err := a.up(ctx, c, r, api.MountRequest{
			Access: a.access(), Workspace: name, Mountpoint: mountpoint, MakeMountpoint: true, MountOptions: options,
		})
		if err != nil {
			return err
		}
		if up.How == api.Same && r.Source != "" {
			a.note("workspace %s exists already; --from is ignored", up.ID)
		}
		return a.result(up, line(mountedLine(up.Workspace)))
	})
}

// mountedLast gives the name of a workspace, and where it is mounted or was last.
func (a *app) mountedLast(ctx context.Context, c *client.Client, ref string) (name, mountpoint string, err error) {
	o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: ref})
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		return "", "", err
	}
	if err == nil && o.Workspace != nil {
		mountpoint = cmp.Or(o.Workspace.Mountpoint, o.Workspace.LastMountpoint)
	}
	if mountpoint == "" {
		return "", "", neverMounted(ref)
	}
	return o.Workspace.ID, mountpoint, nil
}

func neverMounted(name string) error {
	return usagef("missing MOUNTPOINT: workspace %s was not mounted before, and no %s here has it", quote(name), projectName)
}

// upProject does up for the workspaces of a file, or for those of it that are named.
func (a *app) upProject(cmd *cobra.Command, p project, names []string, imported bool) error {
	if len(names) == 0 {
		names = p.names()
	}
	for _, name := range []string{"from", "platform", "options", "engine", "read-only", "size", "inodes"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s needs NAME and MOUNTPOINT: %s says it of its workspaces", name, quote(p.path))
		}
	}
	ctx := cmd.Context()
	return a.withClient(ctx, anyHome, func(c *client.Client) error {
		a.remains = "those that are up stay up"
		// All are created before one is mounted: a directory with a mount in it is no source.
		created := map[string]api.UpResult{}
		failures := map[string]error{}
		for _, name := range names {
			quota, err := p.quota(name)
			if err != nil {
				failures[name] = err
				continue
			}
			created[name], failures[name] = a.upCreate(ctx, c, api.CreateRequest{
				Name: name, Source: p.source(name), WaitImported: imported, Quota: quota,
			})
		}
		err := eachOf(ctx, a, names, "workspaces", func(name string) (api.UpResult, error) {
			up := created[name]
			delete(created, name)
			if err := failures[name]; err != nil {
				return up, err
			}
			options, err := p.options(name)
			if err != nil {
				return up, err
			}
			up, err = a.upMount(ctx, c, up, api.MountRequest{
				Access: a.access(), Workspace: name, Mountpoint: p.mountpoint(name), MakeMountpoint: true,
				MountOptions: options,
			})
			if err != nil {
				return up, err
			}
			if r, prune, err := p.prune(name); err != nil {
				return up, err
			} else if prune {
				r.Access = a.access()
				res, err := c.Prune(ctx, r)
				if err != nil {
					return up, err
				}
				if n := len(res.Deleted); n > 0 {
					a.note("%s: keep of %s deleted %d, %d kept", name, projectName, n, res.Kept)
				}
			}
			return up, nil
		}, func(up api.UpResult) string { return mountedLine(up.Workspace) })
		for name, up := range created { // an interrupt came before
			if up.How == api.Fresh {
				err = errors.Join(err, a.destroyNew(ctx, c, name))
			}
		}
		return err
	})
}

// up creates the workspace if needed and mounts it.
func (a *app) up(
	ctx context.Context, c *client.Client, r api.CreateRequest, mount api.MountRequest,
) (api.UpResult, error) {
	up, err := a.upCreate(ctx, c, r)
	if err != nil {
		return up, err
	}
	return a.upMount(ctx, c, up, mount)
}

// upCreate creates the workspace if needed.
func (a *app) upCreate(ctx context.Context, c *client.Client, r api.CreateRequest) (api.UpResult, error) {
	meter := a.newMeter()
	r.Access, r.Progress = a.access(), meter.report()
	up, err := c.Up(ctx, api.UpRequest{CreateRequest: r})
	meter.done()
	if err != nil {
		return up, err
	}
	if up.How == api.Restored {
		a.note("workspace %s was lost: it is at snapshot %s", r.Name, up.Head)
	}
	return up, nil
}

// upMount mounts the workspace, or destroys it if it was made now.
func (a *app) upMount(
	ctx context.Context, c *client.Client, up api.UpResult, mount api.MountRequest,
) (api.UpResult, error) {
	ws, err := a.mount(ctx, c, mount)
	if err != nil {
		if up.How == api.Fresh {
			err = errors.Join(err, a.destroyNew(ctx, c, mount.Workspace))
		}
		return up, err
	}
	up.Workspace = ws
	return up, nil
}

// undoTimeout bounds the removal of what an interrupted or failed verb created.
const undoTimeout = 30 * time.Second

// destroyNew destroys a workspace that a failing verb has created, even if its context has ended.
func (a *app) destroyNew(ctx context.Context, c api.API, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	_, err := c.Destroy(ctx, api.DestroyRequest{Access: a.access(), Ref: name, Now: true})
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		a.remains = fmt.Sprintf("workspace %s is left; remove it with '%s'", name, a.hint("destroy "+name))
		return fmt.Errorf("%s: %w", a.remains, err)
	}
	return nil
}
