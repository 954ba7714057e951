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
		Long: `Deletes the session's snapshots that no rule keeps, for each workspace on its own, and lists them. --keep-last and
--keep-daily each keep what they name; --older-than keeps what is younger. At least one rule is needed. Workspaces made
from what goes are not harmed. The space comes back with 'snapfs gc' or by and by.`,
		Example: "  snapfs prune --keep-last 10 --keep-daily 7 --dry-run\n  snapfs prune --older-than 30d --workspace app",
		Args:    exact(),
		Annotations: map[string]string{
			"exits": exitHelp(api.ExitNotFound, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		},
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
			a.remains = "what was deleted before stays so"
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
	f.StringVar(&r.Workspace, "workspace", "", "only the snapshots of workspace `NAME`")
	f.IntVar(&r.KeepLast, "keep-last", 0, "keep the newest `N`")
	f.IntVar(&r.KeepDaily, "keep-daily", 0, "keep the newest of each of the last `N` days (UTC) that have any")
	f.StringVar(&older, "older-than", "", "keep what is younger than `DURATION`, as 72h or 30d")
	f.BoolVar(&r.DryRun, "dry-run", false, "only show what would be deleted")
	return cmd
}

func (a *app) pruned(w io.Writer, res api.PruneResult) error {
	list, done := res.Deleted, "deleted"
	if res.DryRun {
		list, done = res.WouldDelete, "would be deleted"
	}
	if len(list) > 0 {
		if err := a.snapshotTable(w, api.SnapshotPage{Snapshots: list}); err != nil {
			return err
		}
	}
	a.note("%d %s, %d kept", len(list), done, res.Kept)
	return nil
}
