package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// command is the command line; started is set once its words are understood.
func command(e *env, started *bool) *cobra.Command {
	all := func(cmd *cobra.Command, _ []string) error {
		var list []suite
		for _, s := range suites() {
			if !s.long || e.full {
				list = append(list, s)
			}
		}
		if e.rounds == 0 && !e.full {
			e.rounds = 1 // all is to end within half an hour
		}
		return runSuites(cmd.Context(), e, list...)
	}
	root := &cobra.Command{
		Use: "bench", Short: "Measure snapfs beside its peers",
		Long: `Measures snapfs beside the tools that people would use instead. Without a suite: all that finish within half an hour.

Exit codes: 0 done; 1 failed, or a restored state differs; 2 usage; 3 a comparison found a figure of snapfs that got worse; 130 interrupted.`,
		SilenceUsage: true, SilenceErrors: true, RunE: all,
		PersistentPreRun: func(*cobra.Command, []string) { *started = true },
	}
	f := root.PersistentFlags()
	f.StringVar(&e.cache, "cache", defaultCache(), "directory of the corpora")
	f.StringVar(&e.out, "out", "bench-results", "directory of the reports")
	f.StringVar(&e.against, "against", "", "compare with the reports of this directory (bench/results: the committed ones)")
	f.Float64Var(&e.noise, "noise", 15, "of comparisons: percent by which CPU time varies; wall time twice that, bytes 1 percent")
	f.StringVar(&e.work, "work", "", "scratch directory (default: made in the cache)")
	f.StringSliceVar(&e.corpora, "corpus", nil, "corpora: "+strings.Join(corpusNames(), ", "))
	f.StringSliceVar(&e.only, "subject", nil, "only these subjects")
	f.BoolVar(&e.full, "full", false, "also what takes long")
	f.BoolVar(&e.merge, "merge", false, "keep what the report has of other cases and subjects")
	f.BoolVar(&e.resume, "resume", false, "as --merge, and go on with a storage run: measure only what the report lacks")
	f.StringVar(&e.remark, "remark", "", "a line for the report: how the run was taken")
	f.StringSliceVar(&e.trees, "tree", nil, "measure these directories as the states of a corpus, instead")
	f.StringVar(&e.repo, "git", "", "measure commits of this repository as the states of a corpus, instead")
	f.IntVar(&e.every, "every", 10, "with --git: every so many-th commit of the first-parent history")
	f.IntVar(&e.limit, "limit", 60, "with --git: at most so many states, the newest")
	f.StringVar(&e.mirror, "mirror", debianMirror, "of Debian's packages, for corpus C5")
	f.StringSliceVar(&e.workloads, "workload", nil, "with io: only workloads whose names begin so; with latency: cases; with scale: parts")
	f.IntVar(&e.rounds, "rounds", 0, "with io: how often each workload runs on each subject (default 3, among all suites 1)")
	f.StringVar(&e.disk, "disk", diskAuto, "with io: what uppers and lowers lie on: a fresh ext4 in memory, here (the scratch directory's disk), or auto (memory if there is enough)")
	f.StringVar(&e.fixture, "fixture", "", "with io: keep the prepared trees in this directory, for the next run")
	for _, s := range suites() {
		root.AddCommand(&cobra.Command{
			Use: s.name, Short: s.about, Args: cobra.ArbitraryArgs,
			RunE: func(cmd *cobra.Command, args []string) error {
				if err := e.moreTrees(args); err != nil {
					return err
				}
				return runSuites(cmd.Context(), e, s)
			},
		})
	}
	root.AddCommand(
		&cobra.Command{Use: "all", Aliases: []string{"run"}, Short: "Run all suites; those that take long with --full", Args: cobra.NoArgs, RunE: all},
		&cobra.Command{
			Use: "corpora", Short: "Build the corpora only, and print their digests", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if err := e.validate(nil); err != nil {
					return err
				}
				return e.withScratch(func() error { return e.printCorpora(cmd.Context(), cmd.OutOrStdout()) })
			},
		},
		operationsCommand(),
		&cobra.Command{
			Use: "peers", Short: "Install missing peers from Debian's packages", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return installPeers(cmd.Context()) },
		},
		&cobra.Command{
			Use: "compare OLD NEW", Short: "Show what got better or worse between two reports, or two directories of them", Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return compareAll(cmd.OutOrStdout(), args[0], args[1], e.noise)
			},
		},
		&cobra.Command{
			Use: "table REPORT.json...", Short: "Print reports as tables for a page, with what snapfs is behind in", Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				for _, path := range args {
					r, err := loadReport(path)
					if err != nil {
						return err
					}
					r.printMarkdown(cmd.OutOrStdout())
				}
				return nil
			},
		},
		&cobra.Command{
			Use: "merge OUT_DIR REPORT.json...", Short: "Make one report of those of a suite that was run in pieces", Args: cobra.MinimumNArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return mergeReports(cmd.OutOrStdout(), args[0], args[1:])
			},
		},
	)
	return root
}

// moreTrees takes what follows `--tree DIR` on the command line: `--tree DIR DIR...`.
func (e *env) moreTrees(args []string) error {
	if len(args) > 0 && len(e.trees) == 0 {
		return usagef("unknown argument %q", args[0])
	}
	e.trees = append(e.trees, args...)
	return nil
}

func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "snapfs-bench")
}
