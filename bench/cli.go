package main

import (
	"strings"

	"github.com/spf13/cobra"

	"snapfs/bench/internal/corpora"
	"snapfs/bench/internal/kernel"
	"snapfs/bench/internal/latency"
	"snapfs/bench/internal/mountio"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/report"
	"snapfs/bench/internal/scale"
	"snapfs/bench/internal/storage"
	"snapfs/bench/internal/suite"
	"snapfs/bench/internal/takeover"
	"snapfs/bench/internal/usage"
)

// suites are all suites, in the order in which `all` runs them.
func suites() []suite.Suite {
	return []suite.Suite{storage.Suite(), mountio.Suite(), latency.Suite(), scale.Suite(), takeover.Suite(), kernel.Suite()}
}

const about = `Measures snapfs beside the tools that people would use instead. Without a suite it runs all that finish
within half an hour.

Exit codes:
  0    done
  1    failed, or a restored state differs
  2    usage
  3    a comparison found a figure of snapfs that got worse
  130  interrupted`

// command is the command line; started is set once its words are understood.
func command(e *suite.Env, started *bool) *cobra.Command {
	all := func(cmd *cobra.Command, _ []string) error {
		var list []suite.Suite
		for _, s := range suites() {
			if !s.Long || e.Full {
				list = append(list, s)
			}
		}
		if e.Rounds == 0 && !e.Full {
			e.Rounds = 1 // all is to end within half an hour
		}
		return suite.Run(cmd.Context(), e, list...)
	}
	root := &cobra.Command{
		Use:              "bench",
		Short:            "Measure snapfs beside its peers",
		Long:             about,
		SilenceUsage:     true,
		SilenceErrors:    true,
		RunE:             all,
		PersistentPreRun: func(*cobra.Command, []string) { *started = true },
	}
	f := root.PersistentFlags()
	f.StringVar(&e.Cache, "cache", suite.DefaultCache(), "directory of the corpora")
	f.StringVar(&e.Out, "out", "bench-results", "directory of the reports")
	f.StringVar(
		&e.Against, "against", "", "compare with the reports of this directory (results: the committed ones)",
	)
	f.Float64Var(
		&e.Noise, "noise", 15,
		"of comparisons: percent by which CPU time varies; wall time twice that, bytes 1 percent",
	)
	f.StringVar(&e.Work, "work", "", "scratch directory (default: made in the cache)")
	f.StringSliceVar(&e.Corpora, "corpus", nil, "corpora: "+strings.Join(corpora.Names(), ", "))
	f.StringSliceVar(&e.Only, "subject", nil, "only these subjects")
	f.BoolVar(&e.Full, "full", false, "also what takes long")
	f.BoolVar(&e.Merge, "merge", false, "keep what the report has of other cases and subjects")
	f.BoolVar(
		&e.Resume, "resume", false, "as --merge, and go on with a storage run: measure only what the report lacks",
	)
	f.StringVar(&e.Remark, "remark", "", "a line for the report: how the run was taken")
	f.StringSliceVar(&e.Trees, "tree", nil, "measure these directories as the states of a corpus, instead")
	f.StringVar(&e.Repo, "git", "", "measure commits of this repository as the states of a corpus, instead")
	f.IntVar(&e.Every, "every", 10, "with --git: every so many-th commit of the first-parent history")
	f.IntVar(&e.Limit, "limit", 60, "with --git: at most so many states, the newest")
	f.StringVar(&e.Mirror, "mirror", corpora.DebianMirror, "of Debian's packages, for corpus C5")
	f.StringSliceVar(
		&e.Workloads, "workload", nil,
		"with io: only workloads whose names begin so; with latency, takeover: cases; with scale, kernel: parts",
	)
	f.IntVar(
		&e.Rounds, "rounds", 0, "with io: how often each workload runs on each subject (default 3, among all suites 1); with takeover: how often the daemon ends (20)",
	)
	f.StringVar(
		&e.Disk, "disk", suite.DiskAuto,
		"with io: what uppers and lowers lie on: a fresh ext4 in memory, here (the scratch directory's disk), "+
			"or auto (memory if there is enough)",
	)
	f.StringVar(&e.Fixture, "fixture", "", "with io: keep the prepared trees in this directory, for the next run")
	for _, s := range suites() {
		root.AddCommand(&cobra.Command{
			Use: s.Name, Short: s.About, Args: cobra.ArbitraryArgs,
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := moreTrees(e, args); err != nil {
					return err
				}
				return suite.Run(cmd.Context(), e, s)
			},
		})
	}
	root.AddCommand(
		&cobra.Command{
			Use: "all", Aliases: []string{"run"}, Short: "Run all suites; those that take long with --full",
			Args: cobra.NoArgs, RunE: all,
		},
		&cobra.Command{
			Use: "corpora", Short: "Build the corpora only, and print their digests", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := e.Validate(nil); err != nil {
					return err
				}
				return e.WithScratch(func() error { return storage.PrintCorpora(cmd.Context(), e, cmd.OutOrStdout()) })
			},
		},
		mountio.OperationsCommand(),
		&cobra.Command{
			Use: "peers", Short: "Install missing peers from Debian's packages", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return program.Install(cmd.Context()) },
		},
		&cobra.Command{
			Use:   "compare OLD NEW",
			Short: "Show what got better or worse between two reports, or two directories of them",
			Args:  cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return report.CompareAll(cmd.OutOrStdout(), args[0], args[1], e.Noise)
			},
		},
		&cobra.Command{
			Use:   "table REPORT.json...",
			Short: "Print reports as tables for a page, with what snapfs is behind in",
			Args:  cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				for _, path := range args {
					r, err := report.Load(path)
					if err != nil {
						return err
					}
					r.PrintMarkdown(cmd.OutOrStdout())
				}
				return nil
			},
		},
		&cobra.Command{
			Use:   "merge OUT_DIR REPORT.json...",
			Short: "Make one report of those of a suite that was run in pieces",
			Args:  cobra.MinimumNArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return suite.Merge(cmd.OutOrStdout(), args[0], suites(), args[1:])
			},
		},
	)
	return root
}

// moreTrees takes what follows `--tree DIR` on the command line: `--tree DIR DIR...`.
func moreTrees(e *suite.Env, args []string) error {
	if len(args) > 0 && len(e.Trees) == 0 {
		return usage.Errorf("unknown argument %q", args[0])
	}
	e.Trees = append(e.Trees, args...)
	return nil
}
