package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// suite is one set of measurements.
type suite struct {
	name  string
	about string
	run   func(ctx context.Context, e *env, r *report) error
}

// suites are all suites, in the order in which `run` runs them.
func suites() []suite {
	return []suite{storageSuite(), ioSuite()}
}

// env is what a suite is run with; immutable once a suite runs.
type env struct {
	cache   string   // corpora
	out     string   // reports
	work    string   // scratch of this run, removed at its end
	corpora []string // names asked for; empty: the suite's default set
	full    bool
	trees   []string // directories that are the states of a corpus of their own
	repo    string   // git repository whose commits are the states of a corpus of its own
	every   int      // of repo: every so many-th commit
	limit   int      // of repo: at most so many states
	only    []string // subjects asked for; empty: all
	bar     *progress

	workloads []string // of io: beginnings of names; empty: all
	rounds    int      // of io: how often each workload runs on each subject
}

// wants says whether a subject is asked for.
func (e *env) wants(subject string) bool {
	for _, s := range e.only {
		if s == subject {
			return true
		}
	}
	return len(e.only) == 0
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		os.Exit(130)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	e := &env{}
	root := &cobra.Command{
		Use: "bench", Short: "Measure snapfs beside its peers",
		SilenceUsage: true, SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.StringVar(&e.cache, "cache", defaultCache(), "directory of the corpora")
	f.StringVar(&e.out, "out", filepath.Join("bench", "results"), "directory of the reports")
	f.StringVar(&e.work, "work", "", "scratch directory (default: made in the cache)")
	f.StringSliceVar(&e.corpora, "corpus", nil, "corpora: "+strings.Join(corpusNames(), ", "))
	f.StringSliceVar(&e.only, "subject", nil, "only these subjects")
	f.BoolVar(&e.full, "full", false, "also what takes long")
	f.StringSliceVar(&e.trees, "tree", nil, "measure these directories as the states of a corpus, instead")
	f.StringVar(&e.repo, "git", "", "measure commits of this repository as the states of a corpus, instead")
	f.IntVar(&e.every, "every", 10, "with --git: every so many-th commit of the first-parent history")
	f.IntVar(&e.limit, "limit", 60, "with --git: at most so many states, the newest")
	f.StringSliceVar(&e.workloads, "workload", nil, "with io: only workloads whose names begin so")
	f.IntVar(&e.rounds, "rounds", 3, "with io: how often each workload runs on each subject")
	for _, s := range suites() {
		root.AddCommand(&cobra.Command{
			Use: s.name, Short: s.about, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return runSuites(cmd.Context(), e, s) },
		})
	}
	root.AddCommand(
		&cobra.Command{
			Use: "run", Aliases: []string{"all"}, Short: "Run all suites", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return runSuites(cmd.Context(), e, suites()...) },
		},
		&cobra.Command{
			Use: "corpora", Short: "Build the corpora only", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return withScratch(e, func() error {
					_, err := e.states(cmd.Context())
					return err
				})
			},
		},
		operationsCommand(),
		&cobra.Command{
			Use: "peers", Short: "Install missing peers from Debian's packages", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return installPeers(cmd.Context()) },
		},
		&cobra.Command{
			Use: "compare OLD.json NEW.json", Short: "Show what got better or worse between two reports", Args: cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				return compareReports(cmd.OutOrStdout(), args[0], args[1])
			},
		},
	)
	return root
}

func defaultCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "snapfs-bench")
}

// withScratch runs fn with a scratch directory that is gone afterwards.
func withScratch(e *env, fn func() error) error {
	parent := e.work
	if parent == "" {
		parent = e.cache
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("make scratch: %w", err)
	}
	dir, err := os.MkdirTemp(parent, "run-")
	if err != nil {
		return fmt.Errorf("make scratch: %w", err)
	}
	e.work, e.bar = dir, newProgress(os.Stderr)
	defer e.bar.done()
	return errors.Join(fn(), os.RemoveAll(dir))
}

func runSuites(ctx context.Context, e *env, list ...suite) error {
	return withScratch(e, func() error {
		for _, s := range list {
			r, err := newReport(ctx, s.name)
			if err != nil {
				return err
			}
			if err := s.run(ctx, e, r); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			e.bar.clear()
			r.print(os.Stdout)
			if err := r.save(e.out); err != nil {
				return err
			}
		}
		return nil
	})
}
