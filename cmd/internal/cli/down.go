package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// downRequest is what 'snapfs down' does with each workspace.
type downRequest struct {
	force   bool
	destroy *api.DestroyRequest // nil: they stay
}

// downed is what --json prints of it.
type downed struct {
	Name      string `json:"name"`
	State     string `json:"state"` // unmounted, or destroyed
	Processes []user `json:"processes,omitempty"`
	// Kept is what a workspace that is destroyed had and no snapshot has.
	Kept *api.Snapshot `json:"kept,omitempty"`
	// Inside are those that were mounted in it, and had to go first.
	Inside []downed `json:"inside,omitempty"`
}

func (d downed) String() string {
	text := ""
	for _, inner := range d.Inside {
		text += inner.String() + "\n"
	}
	return text + d.Name + " is " + d.State
}

func (a *app) downCommand() *cobra.Command {
	var (
		r       downRequest
		kept    keeping
		destroy bool
		all     bool
		file    string
	)
	cmd := &cobra.Command{
		Use:   "down [NAME...]",
		Short: "take workspaces down: unmount them and end what uses them",
		Long: `Unmounts workspaces, or views of snapshots, and removes the directories that were made for their
mounts. Contents and snapshots stay; with --destroy, the workspaces are destroyed as by 'snapfs
destroy', and their snapshots stay.

NAME is a name or a mountpoint; a path inside a workspace is a conflict.

Without NAME, takes down the workspaces of the snapfs.toml of this directory, see 'snapfs up'; with
--all, those of the session that are mounted.

A workspace in use is a conflict, and is left as it is. With --force, the processes that use it are
ended (SIGTERM, after five seconds SIGKILL), and it is unmounted in any case, also in containers that
share the mount. This command and the processes that it was started from are not ended.

What fails for one workspace does not stop the others. The exit code is that of one that failed;
--json lists all under "down" and "failed".`,
		Example:     "  snapfs down app\n  snapfs down --all --force\n  snapfs down app --destroy",
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			keep, err := kept.request(cmd.Flags())
			if err != nil {
				return err
			}
			if r.destroy = nil; destroy {
				r.destroy = &keep
			}
			if file != "" && (all || len(args) > 0) {
				return usagef("--file excludes NAME and --all")
			}
			if !all && len(args) == 0 {
				p, err := readProject(file)
				if err != nil {
					return err
				}
				args = p.names()
				slices.Reverse(args) // what is mounted inside another goes first
			} else if err := namesOrAll(args, all); err != nil {
				return err
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				if all {
					var err error
					if args, err = a.allOf(cmd.Context(), c, api.Mounted, api.Detached); err != nil {
						return err
					}
				}
				a.remains = "those that were taken down before stay so"
				return listOf(cmd.Context(), a, args, "down", func(name string) (downed, error) {
					return a.down(cmd.Context(), c, name, r)
				}, downed.String)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "take down all workspaces of the session")
	f.BoolVar(&r.force, "force", false, "end the processes that use a workspace, and unmount it in any case")
	f.BoolVar(&destroy, "destroy", false, "destroy the workspaces, too")
	kept.flags(f)
	f.StringVarP(&file, "file", "f", "", "the `FILE` that names the workspaces (default: snapfs.toml)")
	return cmd
}

// down takes one workspace down.
func (a *app) down(ctx context.Context, c *client.Client, name string, r downRequest) (downed, error) {
	name, err := a.whole(ctx, c, name)
	if err != nil {
		return downed{}, err
	}
	o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: name})
	if err != nil {
		return downed{}, err
	}
	if o.Workspace == nil {
		return downed{}, failure(api.ErrNotFound, "not found: workspace %s", quote(name))
	}
	ws := *o.Workspace
	d := downed{Name: ws.ID, State: string(api.Unmounted)}
	if ws.State != api.Unmounted {
		if r.force {
			if d.Inside, err = a.downInside(ctx, c, ws); err != nil {
				return d, err
			}
			if d.Processes, err = endUsers(ctx, ws); err != nil {
				return d, err
			}
		}
		now, err := a.umount(ctx, c, ws.ID, r.force)
		if err != nil {
			return d, err
		}
		d.State = string(now.State)
	} else if _, err := a.umount(ctx, c, ws.ID, false); err != nil { // one that is to be mounted again
		return d, err
	}
	if r.destroy != nil && ws.View && d.State == string(api.Unmounted) { // gone with its mount
		d.State = "destroyed"
	} else if r.destroy != nil {
		got, err := a.destroy(ctx, c, ws.ID, *r.destroy)
		if err != nil {
			return d, err
		}
		d.State, d.Kept = "destroyed", got.Kept
	}
	return d, nil
}

// downInside takes those down by force that are mounted inside a workspace, which would go with it.
func (a *app) downInside(ctx context.Context, c *client.Client, outer api.Workspace) ([]downed, error) {
	var found []api.Workspace
	var all []downed
	for w, err := range api.AllWorkspaces(ctx, c, api.ListRequest{Access: a.access(), Views: true}) {
		if err != nil {
			return all, err
		}
		if w.State != api.Mounted || !strings.HasPrefix(w.Mountpoint, outer.Mountpoint+"/") || outer.Mountpoint == "" {
			continue
		}
		found = append(found, w)
	}
	slices.SortFunc(found, func(a, b api.Workspace) int { return len(b.Mountpoint) - len(a.Mountpoint) })
	for _, w := range found { // the innermost first
		d, err := a.down(ctx, c, w.ID, downRequest{force: true})
		if err != nil {
			return all, err
		}
		all = append(all, d)
	}
	return all, nil
}

// umount unmounts a workspace. That it is unmounted already is no error.
func (a *app) umount(ctx context.Context, c *client.Client, name string, force bool) (api.Workspace, error) {
	ws, err := c.Unmount(ctx, api.UnmountRequest{Access: a.access(), Workspace: name, Force: force})
	if errors.Is(err, api.ErrConflict) {
		o, showErr := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: name})
		if showErr == nil && o.Workspace != nil && o.Workspace.State == api.Unmounted {
			return *o.Workspace, nil
		}
	}
	if err == nil && ws.State == api.Detached {
		if ws.Engine == api.EngineKernel {
			a.note("programs still use the mount of %s, or another mount namespace, such as a container's, holds a copy of it: "+
				"it ends when these end", ws.ID)
		} else {
			a.note("another mount namespace, such as a container's, holds a copy of the mount of %s; '%s' ends it",
				ws.ID, a.hint("umount --force "+ws.ID))
		}
	}
	return ws, err
}

// endWait is for how long processes may take to end after SIGTERM.
const endWait = 5 * time.Second

// endUsers ends the processes that use a workspace that is mounted where this process sees it, and says which.
func endUsers(ctx context.Context, ws api.Workspace) ([]user, error) {
	device, ok := deviceOf(ws)
	if !ok {
		return nil, nil
	}
	spare := ancestors()
	var found []user
	for _, u := range usersOf(device) {
		if !spare[u.PID] {
			found = append(found, u)
		}
	}
	if err := endProcesses(ctx, device, found, endWait); err != nil {
		return found, fmt.Errorf("ending what uses %s (%s): %w", ws.ID, userList(found), err)
	}
	return found, nil
}

func userList(users []user) string {
	var names []string
	for _, u := range users {
		names = append(names, u.String())
	}
	return strings.Join(names, ", ")
}
