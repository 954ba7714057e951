package cli

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

func (a *app) snapshotsCommand() *cobra.Command {
	var r api.ListRequest
	cmd := listing(a, &cobra.Command{
		Use:   "snapshots [--workspace NAME]",
		Short: "list snapshots",
		Long: `Lists the snapshots of the session, oldest first, one page at most. If there are more, a message on
standard error says how to see them.

A snapshot is sealed, which is safe, until background work has stored it. PROBLEM is not-storable if
a layer cannot be stored. 'snapfs show' says why.`,
		Example: `  snapfs snapshots --workspace app
  snapfs snapshots --limit 10 --after 0199d5a4-7a1e-7c3b-8f00-2b1d5e6f7a8b`,
	}, &r, api.API.Snapshots, a.snapshotTable)
	cmd.Flags().StringVar(&r.Workspace, "workspace", "", "only those of workspace `NAME`")
	return cmd
}

func (a *app) snapshotTable(w io.Writer, page api.SnapshotPage) error {
	rows := make([][]string, 0, len(page.Snapshots))
	for _, s := range page.Snapshots {
		expires := "-"
		if s.ExpiresAt != nil {
			expires = moment(*s.ExpiresAt)
		}
		rows = append(rows, []string{
			s.ID, orDash(quoteIf(s.Name)), s.Workspace, string(s.State), strconv.Itoa(s.Depth), moment(s.CreatedAt),
			expires, notStored(s.Problem),
		})
	}
	if err := table(w, "ID NAME WORKSPACE STATE LAYERS CREATED EXPIRES PROBLEM", rows); err != nil {
		return err
	}
	if page.More {
		a.more(page.Snapshots[len(page.Snapshots)-1].ID)
	}
	return nil
}
