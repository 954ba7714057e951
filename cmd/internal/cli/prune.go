package cli

import (
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) pruneCommand() *cobra.Command {
	var r api.PruneRequest
	var older string
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "delete snapshots by rule",
		Long: `Deletes the snapshots of the session that no rule keeps, and lists them. The rules apply to each
workspace separately. At least one rule is required:

  --keep-last N          keeps the newest N snapshots
  --keep-daily N         keeps the newest snapshot of each of the last N days that have any
  --older-than DURATION  keeps younger snapshots

Names make no difference. Two kinds of snapshots stay in any case: what a workspace is at (that to
which it was rolled back, from which it was made, or which was taken last), and what a rollback kept
of unsaved changes, until it expires. The latter do not count as one of the N.

Workspaces made from deleted snapshots are not affected. The space is returned by 'snapfs gc', or
later in the background.`,
		Example: `  snapfs prune --keep-last 10 --keep-daily 7 --dry-run
  snapfs prune --older-than 30d --workspace app`,
		Args:        exact(),
		Annotations: exits(api.ExitNotFound, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"keep-last", "keep-daily"} {
				if n, err := cmd.Flags().GetInt(name); err == nil && cmd.Flags().Changed(name) && n < 1 {
					return usagef("--%s %d: at least 1", name, n)
				}
			}
			if older != "" {
				d, err := parseDuration(older)
				if err != nil || d <= 0 {
					return usagef("--older-than %q: a positive duration such as 90m, 72h or 7d", older)
				}
				r.OlderThan = d
			}
			if r.KeepLast == 0 && r.KeepDaily == 0 && r.OlderThan == 0 {
				return usagef("prune needs --keep-last, --keep-daily or --older-than")
			}
			r.Access = a.access()
			a.remains = "snapshots that were deleted before stay deleted"
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				res, err := c.Prune(cmd.Context(), r)
				if err != nil {
					return err
				}
				return a.result(res, func(w io.Writer) error { return a.pruned(w, res) })
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.Workspace, "workspace", "", "only snapshots of workspace `NAME`")
	f.IntVar(&r.KeepLast, "keep-last", 0, "keep the newest `N` snapshots")
	f.IntVar(&r.KeepDaily, "keep-daily", 0, "keep the newest of each of the last `N` days (UTC) that have any")
	f.StringVar(&older, "older-than", "", "keep snapshots younger than `DURATION`, such as 72h or 30d")
	f.BoolVar(&r.DryRun, "dry-run", false, "show what would be deleted, and delete nothing")
	return cmd
}

func (a *app) pruned(w io.Writer, res api.PruneResult) error {
	list, done := res.Deleted, "deleted"
	if res.DryRun {
		list, done = res.WouldDelete, "would be deleted"
	}
	if len(list) > 0 {
		if err := snapshotTable(w, api.SnapshotPage{Snapshots: list}); err != nil {
			return err
		}
	}
	a.note("%d %s, %d kept", len(list), done, res.Kept)
	return nil
}
