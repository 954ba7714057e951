package main

import (
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
)

func (a *app) snapshotsCommand() *cobra.Command {
	r := sandbox.ListRequest{}
	cmd := &cobra.Command{
		Use:   "snapshots [--workspace NAME]",
		Short: "list snapshots",
		Long: `Lists the snapshots of the session, oldest first, at most a page of them. A last line says whether there are
more, and how to see them. A snapshot is sealed, which is safe, until the background work has it stored.`,
		Example:     "  snapfs snapshots --workspace app\n  snapfs snapshots --limit 10 --after 0199d5a4-7a1e-7c3b-8f00-2b1d5e6f7a8b",
		Args:        exact(),
		Annotations: map[string]string{"exits": exitHelp(exitNotFound, exitRefused, exitUnavailable)},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.clampLimit(&r); err != nil {
				return err
			}
			r.Access = a.access()
			return a.withClient(cmd.Context(), existingHome, func(c *daemon.Client) error {
				page, err := c.Snapshots(cmd.Context(), r)
				if err != nil {
					return err
				}
				if page.Snapshots == nil {
					page.Snapshots = []sandbox.Snapshot{}
				}
				return a.result(page, func(w io.Writer) error { return a.snapshotTable(w, page) })
			})
		},
	}
	cmd.Flags().StringVar(&r.Workspace, "workspace", "", "only those of workspace `NAME`")
	pageFlags(cmd, &r)
	return cmd
}

func (a *app) snapshotTable(w io.Writer, page sandbox.SnapshotPage) error {
	rows := make([][]string, 0, len(page.Snapshots))
	for _, s := range page.Snapshots {
		expires := "-"
		if s.ExpiresAt != nil {
			expires = moment(*s.ExpiresAt)
		}
		rows = append(rows, []string{
			s.ID, orDash(quoteIf(s.Name)), s.Workspace, string(s.State), strconv.Itoa(len(s.Layers)), moment(s.CreatedAt), expires,
		})
	}
	if err := table(w, "ID NAME WORKSPACE STATE LAYERS CREATED EXPIRES", rows); err != nil {
		return err
	}
	if page.More {
		a.note("there are more: --after %s", page.Snapshots[len(page.Snapshots)-1].ID)
	}
	return nil
}
