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
		Long: `Lists the snapshots of the session, one page of 100 at most. If there are more, a message on standard
error says how to see them. --all shows all.

The oldest is first: unlike that of 'snapfs list', this is the order of the ids. With --newest-first,
the pages begin with the newest, and --after goes on with older ones.

A snapshot is sealed, which is safe, until background work has stored it. PROBLEM is not-storable if
a layer cannot be stored. 'snapfs show' says why.`,
		Example: `  snapfs snapshots --workspace app --newest-first
  snapfs snapshots --limit 10 --after 0199d5a4-7a1e-7c3b-8f00-2b1d5e6f7a8b`,
	}, &r, paged[api.SnapshotPage]{
		ask: api.API.Snapshots, show: snapshotTable, next: nextSnapshot, join: joinSnapshots,
	})
	cmd.Flags().BoolVar(&r.NewestFirst, "newest-first", false, "the newest first")
	cmd.Flags().StringVar(&r.Workspace, "workspace", "", "only those of workspace `NAME`")
	return cmd
}

// nextSnapshot is where the page after one begins.
func nextSnapshot(_ api.ListRequest, page api.SnapshotPage) string {
	if !page.More || len(page.Snapshots) == 0 {
		return ""
	}
	return page.Snapshots[len(page.Snapshots)-1].ID
}

// joinSnapshots adds the page that follows.
func joinSnapshots(to *api.SnapshotPage, page api.SnapshotPage) {
	to.Snapshots, to.More = append(to.Snapshots, page.Snapshots...), page.More
}

func snapshotTable(w io.Writer, page api.SnapshotPage) error {
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
	return table(w, "ID NAME WORKSPACE STATE LAYERS CREATED EXPIRES PROBLEM", rows)
}
