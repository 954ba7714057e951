package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) destroyCommand() *cobra.Command {
	var (
		force bool
		keep  keeping
	)
	cmd := &cobra.Command{
		Use:   "destroy NAME...",
		Short: "destroy workspaces",
		Long: `Destroys workspaces. Their snapshots stay, and so do workspaces made from them. What a workspace has and
no snapshot has is kept as a snapshot without a name, which expires after 7 days, or --keep-for; the
command prints its id and how to get it back. With --now it is lost.

A mounted workspace is a conflict: unmount it first, or use --force, which does so as 'snapfs down
--force' does. The files are removed in the background.

NAME is the name of a workspace or its mountpoint; a path inside it names too much, and is a conflict.

With several arguments, all that can be destroyed are destroyed. If some cannot, the exit code is
that of one of them.`,
		Example: `  snapfs umount try-1 && snapfs destroy try-1
  snapfs destroy try-1 try-2 --force --keep-for 1d`,
		Args:        atLeastOne("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := keep.request(cmd.Flags())
			if err != nil {
				return err
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				kept := []api.DestroyResult{}
				return a.eachWith(cmd.Context(), args, "destroyed", func(name string) (string, error) {
					got, err := func() (api.DestroyResult, error) {
						if !force {
							name, err := a.whole(cmd.Context(), c, name)
							if err != nil {
								return api.DestroyResult{}, err
							}
							return a.destroy(cmd.Context(), c, name, r)
						}
						d, err := a.down(cmd.Context(), c, name, downRequest{force: true, destroy: &r})
						return api.DestroyResult{Workspace: d.Name, Kept: d.Kept}, err
					}()
					if err == nil && got.Kept != nil {
						kept = append(kept, got)
					}
					return got.Workspace, err
				}, func(doc map[string]any) {
					if len(kept) > 0 {
						doc["kept"] = kept
					}
				})
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "end the processes that use a workspace, and unmount it before")
	keep.flags(cmd.Flags())
	return cmd
}

// keeping are the options that say what is kept of a workspace that is destroyed.
type keeping struct {
	now     bool
	keepFor time.Duration
}

func (k *keeping) flags(f *pflag.FlagSet) {
	f.BoolVar(&k.now, "now", false, "keep nothing of what no snapshot has")
	f.Var(duration{&k.keepFor}, "keep-for", "keep what no snapshot has for `DURATION`, such as 72h or 30d (default 7d)")
}

// request is what the options ask for.
func (k *keeping) request(f *pflag.FlagSet) (api.DestroyRequest, error) {
	switch {
	case f.Changed("keep-for") && k.now:
		return api.DestroyRequest{}, usagef("--now and --keep-for exclude each other")
	case f.Changed("keep-for") && k.keepFor <= 0:
		return api.DestroyRequest{}, usagef("--keep-for %s: a positive duration such as 72h or 30d", k.keepFor)
	}
	return api.DestroyRequest{Now: k.now, KeepFor: k.keepFor}, nil
}

// destroy destroys a workspace, and says what was kept of it.
func (a *app) destroy(
	ctx context.Context, c *client.Client, name string, r api.DestroyRequest,
) (api.DestroyResult, error) {
	r.Access, r.Ref = a.access(), name
	got, err := c.Destroy(ctx, r)
	if err == nil && got.Kept != nil {
		a.note("what no snapshot had of %s is snapshot %s until %s; '%s' brings it back", got.Workspace,
			got.Kept.ID, moment(*got.Kept.ExpiresAt), a.hint("create "+got.Workspace+" --from "+got.Kept.ID))
	}
	return got, err
}
