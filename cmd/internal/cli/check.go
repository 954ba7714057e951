package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) checkCommand() *cobra.Command {
	r := api.CheckRequest{}
	rebuild := false
	cmd := &cobra.Command{
		Use:   "check [--read-data] [--repair] | --rebuild-index",
		Short: "verify a home",
		Long: `Verifies that all records of the home hold together, and with --read-data that every stored byte still has its
checksum. Each problem is a line that names the snapshots it hits; the exit code tells clean from corrupt.

It also names the files of a snapshot or workspace that share an inode number and are no hard links of each other, up to 100 for each.
Earlier versions could make such files from an image of another home, and take one for the other. Compare them with what they were
made from; what is exported and given to 'create --from' has numbers of its own.

With --repair the data that was found damaged leaves the index. The snapshots named keep what else they have, all others are
whole, and equal contents that come again, by 'create --from' or a new snapshot, are stored anew. Lost data does not
come back: delete the snapshots named, or copy out of them what still reads. Without --repair nothing is changed.

With --rebuild-index the index of a home that no daemon can open is made anew from the packs and the journal that lie beside
it; what is left of the old one does not matter. No daemon may run. Snapshots that lose by damage to the packs are
named, and the old index is kept then. What was deleted stays deleted.`,
		Example:     "  snapfs check\n  snapfs check --read-data --json\n  snapfs check --read-data --repair\n  snapfs check --rebuild-index",
		Args:        exact(),
		Annotations: map[string]string{"exits": exitHelp(api.ExitNotFound, api.ExitConflict, api.ExitCorrupt, api.ExitUnavailable)},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rebuild {
				if r.ReadData || r.Repair {
					return usagef("--rebuild-index goes alone: check after it")
				}
				return a.rebuildIndex(cmd.Context())
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				meter := a.newMeter()
				r.Progress = meter.report()
				got, err := c.Check(cmd.Context(), r)
				meter.done()
				if err != nil {
					return err
				}
				if got.Problems == nil {
					got.Problems = []api.Problem{}
				}
				err = a.result(got, func(w io.Writer) error { return a.printProblems(w, got.Problems) })
				if err == nil && len(got.Problems) > 0 {
					err = failure(api.ErrCorrupt, "%d problems in %s", len(got.Problems), a.home)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&r.ReadData, "read-data", false, "read and verify all stored data")
	cmd.Flags().BoolVar(&r.Repair, "repair", false, "take damaged data out of the index")
	cmd.Flags().BoolVar(&rebuild, "rebuild-index", false, "make a damaged index anew")
	return cmd
}

func (a *app) printProblems(w io.Writer, problems []api.Problem) error {
	for _, p := range problems {
		hits := ""
		for i, s := range p.Snapshots {
			if i == 0 {
				hits = "; hits"
			}
			hits += " " + s
		}
		if _, err := fmt.Fprintf(w, "%s: %s%s\n", p.Where, p.What, hits); err != nil {
			return err
		}
	}
	if len(problems) == 0 {
		a.note("no problems found")
	}
	return nil
}
