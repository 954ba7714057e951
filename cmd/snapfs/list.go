package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
)

// maxLimit is the most that one page holds.
const maxLimit = 100

func (a *app) listCommand() *cobra.Command {
	r := sandbox.ListRequest{}
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "list workspaces",
		Long: `Lists the workspaces of the session in the order of their names, at most a page of them. A last line says whether
there are more, and how to see them.`,
		Example:     "  snapfs list\n  snapfs list --limit 20 --after app-branch-1f\n  snapfs list --json",
		Args:        exact(),
		Annotations: map[string]string{"exits": exitHelp(exitNotFound, exitRefused, exitUnavailable)},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.clampLimit(&r); err != nil {
				return err
			}
			r.Access = a.access()
			return a.withClient(cmd.Context(), existingHome, func(c *daemon.Client) error {
				page, err := c.Workspaces(cmd.Context(), r)
				if err != nil {
					return err
				}
				if page.Workspaces == nil {
					page.Workspaces = []sandbox.Workspace{}
				}
				return a.result(page, func(w io.Writer) error { return a.workspaceTable(w, page) })
			})
		},
	}
	pageFlags(cmd, &r)
	return cmd
}

func (a *app) workspaceTable(w io.Writer, page sandbox.WorkspacePage) error {
	rows := make([][]string, 0, len(page.Workspaces))
	for _, ws := range page.Workspaces {
		rows = append(rows, []string{
			ws.ID, string(ws.State), orDash(quoteIf(ws.Mountpoint)), strconv.Itoa(ws.Layers), moment(ws.CreatedAt), orDash(ws.Origin), ws.Session,
		})
	}
	if err := table(w, "NAME STATE MOUNTPOINT LAYERS CREATED ORIGIN SESSION", rows); err != nil {
		return err
	}
	if page.More {
		a.note("there are more: --after %s", page.Workspaces[len(page.Workspaces)-1].ID)
	}
	return nil
}

// pageFlags adds the flags of a listing.
func pageFlags(cmd *cobra.Command, r *sandbox.ListRequest) {
	cmd.Flags().IntVar(&r.Limit, "limit", maxLimit, "at most `N`; more than 100 is lowered to 100")
	cmd.Flags().StringVar(&r.After, "after", "", "only what comes after `ID`")
}

// clampLimit refuses a limit below 1 and lowers one that is above what a page holds.
func (a *app) clampLimit(r *sandbox.ListRequest) error {
	if r.Limit < 1 {
		return usagef("--limit %d: 1 to %d", r.Limit, maxLimit)
	}
	if r.Limit > maxLimit {
		a.note("--limit %d is lowered to %d", r.Limit, maxLimit)
		r.Limit = maxLimit
	}
	return nil
}

// quoteIf is quote, but for nothing, which stays nothing.
func quoteIf(path string) string {
	if path == "" {
		return ""
	}
	return quote(path)
}
