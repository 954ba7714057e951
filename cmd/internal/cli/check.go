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
		Long: `Verifies that the records of the home are consistent. With --read-data, also verifies the checksum
of all stored data. Prints one line per problem, with the snapshots that it affects. The exit code
is 0 if there are none. Nothing is changed without --repair or --rebuild-index.

Also reports files of a snapshot or workspace that share an inode number without being hard links,
up to 100 for each. Earlier versions could create such files from an image of another home, and take
one for the other. Compare them with their originals. After an export and 'create --from', they have
different numbers.

With --repair, data that was found damaged is removed from the index. The snapshots named keep the
rest of their data; all other snapshots are complete. Equal data that arrives later, by 'create
--from' or a new snapshot, is stored again. Lost data does not come back: delete the snapshots
named, or copy what can still be read out of them.

With --rebuild-index, the index of a home that no daemon can open is rebuilt from the packs and the
journal beside it. The old index is not read. No daemon may run. Snapshots that lost data to damaged
packs are named, and the old index is then kept. What was deleted stays deleted.`,
		Example: `  snapfs check
  snapfs check --read-data --json
  snapfs check --read-data --repair
  snapfs check --rebuild-index`,
		Args:        exact(),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rebuild {
				if r.ReadData || r.Repair {
					return usagef("--rebuild-index takes no other option: run check after it")
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
	cmd.Flags().BoolVar(&r.Repair, "repair", false, "remove damaged data from the index")
	cmd.Flags().BoolVar(&rebuild, "rebuild-index", false, "rebuild a damaged index")
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
