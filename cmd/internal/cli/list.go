package cli

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

func (a *app) listCommand() *cobra.Command {
	return listing(a, &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "list workspaces",
		Long: `Lists the workspaces of the session, sorted by name, one page at most. If there are more, a message
on standard error says how to see them.

PROBLEM is not-storable if a layer cannot be stored and therefore stays a sealed directory. 'snapfs
show' says why.`,
		Example: "  snapfs list\n  snapfs list --limit 20 --after app-branch-1f\n  snapfs list --json",
	}, &api.ListRequest{}, api.API.Workspaces, a.workspaceTable)
}

func (a *app) workspaceTable(w io.Writer, page api.WorkspacePage) error {
	rows := make([][]string, 0, len(page.Workspaces))
	for _, ws := range page.Workspaces {
		rows = append(rows, []string{
			ws.ID, string(ws.State), orDash(quoteIf(ws.Mountpoint)), strconv.Itoa(ws.Layers), moment(ws.CreatedAt),
			orDash(ws.Origin),
			ws.Session, orDash(yes(ws.Foreign)), notStored(ws.Problem),
		})
	}
	if err := table(w, "NAME STATE MOUNTPOINT LAYERS CREATED ORIGIN SESSION FOREIGN PROBLEM", rows); err != nil {
		return err
	}
	if page.More {
		a.more(page.Workspaces[len(page.Workspaces)-1].ID)
	}
	return nil
}

// notStored is the cell of a workspace or snapshot with a layer that cannot be stored.
func notStored(problem string) string {
	if problem != "" {
		return "not-storable"
	}
	return "-"
}
