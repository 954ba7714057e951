package cli

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
)

func (a *app) listCommand() *cobra.Command {
	r := api.ListRequest{}
	byName := false
	var cmd *cobra.Command
	cmd = listing(a, &cobra.Command{
		Use:   "list",
		Short: "list workspaces",
		Long: `Lists the workspaces of the session, the newest first, one page of 100 at most. If there are more, a
message on standard error says how to see them. --all shows all, and the views of snapshots that are
mounted, whose STATE says view. With --allow-cross-session, those of all sessions are listed.

MOUNTPOINT is in parentheses where a workspace was mounted last, and is not mounted now.

STATE says importing while the directory that a workspace was made from is being imported, with the
part that is done, or the number of files where it is not known how many there are; import-failed
until that is tried again.

STATE says kernel of a workspace whose mounts are the kernel's ('snapfs help mount', --engine).

PROBLEM is not-storable if a layer cannot be stored and therefore stays a sealed directory. 'snapfs
show' says why.`,
		Example: "  snapfs list\n  snapfs list --limit 20 --after app\n  snapfs list --all --json",
	}, &r, paged[api.WorkspacePage]{
		ask: func(c api.API, ctx context.Context, r api.ListRequest) (api.WorkspacePage, error) {
			r.NewestFirst = !byName
			r.Views, _ = cmd.Flags().GetBool("all") // it has the flag
			return c.Workspaces(ctx, r)
		},
		show: workspaceTable,
		next: func(r api.ListRequest, page api.WorkspacePage) string {
			if !page.More || len(page.Workspaces) == 0 {
				return ""
			}
			r.NewestFirst = !byName
			return r.Cursor(page.Workspaces[len(page.Workspaces)-1])
		},
		join: func(to *api.WorkspacePage, page api.WorkspacePage) {
			to.Workspaces, to.More = append(to.Workspaces, page.Workspaces...), page.More
		},
	})
	cmd.Flags().BoolVar(&byName, "by-name", false, "in order of names")
	return cmd
}

func workspaceTable(w io.Writer, page api.WorkspacePage) error {
	rows := make([][]string, 0, len(page.Workspaces))
	for _, ws := range page.Workspaces {
		rows = append(rows, []string{
			ws.ID, stateOf(ws), orDash(mountpointOf(ws)), strconv.Itoa(ws.Layers), moment(ws.CreatedAt),
			orDash(ws.Origin),
			ws.Session, orDash(yes(ws.Foreign)), notStored(ws.Problem),
		})
	}
	return table(w, "NAME STATE MOUNTPOINT LAYERS CREATED ORIGIN SESSION FOREIGN PROBLEM", rows)
}

// stateOf is the cell of a workspace's state.
func stateOf(ws api.Workspace) string {
	state := string(ws.State)
	if ws.Paused {
		state += ",paused"
	}
	if ws.Engine != "" {
		state += "," + ws.Engine
	}
	if ws.View {
		state += ",view"
	}
	if i := importState(ws.Import); i != "" {
		state += "," + i
	}
	return state
}

// mountpointOf says where a workspace is mounted, or was last.
func mountpointOf(ws api.Workspace) string {
	if ws.Mountpoint == "" && ws.LastMountpoint != "" {
		return "(" + quote(ws.LastMountpoint) + ")"
	}
	return quoteIf(ws.Mountpoint)
}

// notStored is the cell of a workspace or snapshot with a layer that cannot be stored.
func notStored(problem string) string {
	if problem != "" {
		return "not-storable"
	}
	return "-"
}
