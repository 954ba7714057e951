package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// collected says what a collection did. What was dropped and did not come back lies free in the store's files.
func collected(got api.GCResult) string {
	text := fmt.Sprintf("freed %s", size(got.Freed))
	if kept := got.Dropped - got.Freed; kept > 0 {
		text += fmt.Sprintf(", and %s for what is stored next,", size(kept))
	}
	return fmt.Sprintf("%s in %d chunks, deleted %d expired snapshots", text, got.Chunks, got.Expired)
}

func (a *app) gcCommand() *cobra.Command {
	r := api.GCRequest{}
	cmd := &cobra.Command{
		Use:   "gc [--optimize]",
		Short: "give the space of what was deleted back to the host",
		Long: `Deletes snapshots that are past their time, and gives back the space of chunks that no layer needs. Workspaces
stay mounted and usable meanwhile. Moving data costs time and writes, so what is dead in a file of the store waits there,
and stats shows it as reclaimable, until it is 2 % of the file; gc says how much that is. Layers that a newer snapshot still
stands on are kept whole. With --optimize, cold data are packed anew as well, which takes longer.`,
		Example:     "  snapfs gc\n  snapfs gc --optimize --json",
		Args:        exact(),
		Annotations: map[string]string{"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitCorrupt, api.ExitUnavailable)},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				meter := a.newMeter()
				r.Progress = meter.report()
				a.remains = "what was freed before stays free"
				got, err := c.GC(cmd.Context(), r)
				meter.done()
				if err != nil {
					return err
				}
				return a.result(got, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, collected(got))
					if err == nil && got.Left > 0 {
						a.note("%s of garbage stay in files of which less than 2 %% is garbage", size(got.Left))
					}
					return err
				})
			})
		},
	}
	cmd.Flags().BoolVar(&r.Optimize, "optimize", false, "pack cold data anew")
	return cmd
}
