package cli

import (
	"context"
	"errors"

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

SNAP is WORKSPACE:NAME, an id or the beginning of one. NAME alone is enough in a directory of the
workspace that has it; elsewhere it is a conflict, so that it cannot mean another workspace's.

With several arguments, all that can be deleted are deleted. If some cannot, the exit code is that
of one of them.`,
		Example:     "  snapfs delete app:before-upgrade\n  snapfs delete 0199d5a4 0199d5b0",
		Args:        atLeastOne("SNAP"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				return a.each(cmd.Context(), args, "deleted", func(ref string) (string, error) {
					return a.delete(cmd.Context(), c, ref)
				})
			})
		},
	}
}

// delete deletes a snapshot, and gives it by its workspace and name, or as it was named by its id.
func (a *app) delete(ctx context.Context, c *client.Client, ref string) (string, error) {
	request := api.RefRequest{Access: a.access(), Ref: ref}
	if api.CompleteID(ref) != "" { // which may be deleted already
		return ref, c.Delete(ctx, request)
	}
	s, err := a.toDelete(ctx, c, ref)
	if err != nil {
		return "", err
	}
	if s == nil { // the daemon says what it is instead
		return ref, c.Delete(ctx, request)
	}
	request.Ref = s.ID
	return spelt(*s), c.Delete(ctx, request)
}

// toDelete finds the snapshot that a reference names; nil if it names none. A name alone is of the workspace of the
// present directory.
func (a *app) toDelete(ctx context.Context, c *client.Client, ref string) (*api.Snapshot, error) {
	_, _, whole := api.SplitRef(ref)
	if !whole && !api.IsPrefix(ref) {
		if here, err := c.Locate(ctx, api.LocateRequest{Access: a.access(), Path: "."}); err == nil {
			o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: here.ID + ":" + ref})
			if err == nil || !errors.Is(err, api.ErrNotFound) {
				return o.Snapshot, err
			}
		}
	}
	o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: ref})
	switch {
	case errors.Is(err, api.ErrNotFound), errors.Is(err, api.ErrRefused):
		return nil, nil
	case err != nil:
		return nil, err
	case o.Snapshot != nil && o.Snapshot.Name == ref && !whole:
		return nil, failure(api.ErrConflict, "conflict: snapshot %s is of workspace %s, which is not that of this "+
			"directory: to delete it, write %s", quote(ref), o.Snapshot.Workspace, shellWord(spelt(*o.Snapshot)))
	}
	return o.Snapshot, nil
}

// spelt is how a snapshot is named without doubt.
func spelt(s api.Snapshot) string {
	if s.Name == "" || api.ValidSnapshotName(s.Name) != nil {
		return s.ID
	}
	return s.Workspace + ":" + s.Name
}

func atLeastOne(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("missing %s", name)
		}
		return nil
	}
}
