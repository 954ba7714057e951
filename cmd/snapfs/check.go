package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
)

func (a *app) checkCommand() *cobra.Command {
	r := sandbox.CheckRequest{}
	cmd := &cobra.Command{
		Use:   "check [--read-data]",
		Short: "verify a home",
		Long: `Verifies that all records of the home hold together, and with --read-data that every stored byte still has its
checksum. Changes nothing. Each problem is a line that names the snapshots it hits; the exit code tells clean from corrupt.`,
		Example:     "  snapfs check\n  snapfs check --read-data --json",
		Args:        exact(),
		Annotations: map[string]string{"exits": exitHelp(exitNotFound, exitConflict, exitCorrupt, exitUnavailable)},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), existingHome, func(c *daemon.Client) error {
				meter := a.newMeter()
				r.Progress = meter.report()
				got, err := c.Check(cmd.Context(), r)
				meter.done()
				if err != nil {
					return err
				}
				if got.Problems == nil {
					got.Problems = []sandbox.Problem{}
				}
				err = a.result(got, func(w io.Writer) error { return a.printProblems(w, got.Problems) })
				if err == nil && len(got.Problems) > 0 {
					err = failure(sandbox.ErrCorrupt, "%d problems in %s", len(got.Problems), a.home)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&r.ReadData, "read-data", false, "read and verify all stored data")
	return cmd
}

func (a *app) printProblems(w io.Writer, problems []sandbox.Problem) error {
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
