package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) applyCommand() *cobra.Command {
	var r api.ApplyRequest
	var ours, theirs bool
	var git toGit
	cmd := &cobra.Command{
		Use:   "apply FROM [--to NAME|DIR | --to-git REPO --branch B] | apply --undo [NAME|DIR] | apply --drop ID",
		Short: "bring the changes of a workspace or snapshot into another workspace, or home into a directory",
		Long: `Brings what was changed in FROM, a workspace or a snapshot, into workspace NAME or directory DIR;
without --to, into the one that FROM was made from. What that has of its own stays: it is a merge,
with the state that both stem from as the base. Programs in NAME see all of it at once.

Contents, permissions, owners, links, renames, deletions and attributes are taken over. Texts that
both sides changed are merged line by line, with the result of 'git merge-file'.

What both changed in different ways is a conflict. Then nothing is changed, the conflicts are listed,
and the exit code is 4, unless one of these is given:

  --ours               where there is a conflict, NAME or DIR stays as it is
  --theirs             where there is a conflict, FROM is taken
  --conflicts=markers  conflicting lines of texts are both put in, between markers as of git; other
                       conflicts still stop

If FROM, or what it was branched from, was mounted with --track-reads, what NAME has changed since, and
programs there have read, is told: their work might have been another. With --serializable nothing is
changed then, nor if it is not known what they have read; the exit code is 4, and the lines printed
are S, a path, what was read of it and how it changed. 'snapfs help reads' says what is tracked.

Before, both are frozen as snapshots without names, which expire after seven days. 'snapfs apply
--undo NAME' takes the last apply to NAME back. If NAME was changed since, that is a conflict,
unless --force is given: then what was changed since is kept as 'snapfs rollback' does.

A directory is changed with the rights of the user who calls. Each file is replaced whole, by another
one that was written beside it. What is changed there is kept before; 'snapfs apply --undo DIR' puts
it back as it was, with its times and attributes. It is refused if that was changed since; --force
keeps that in a snapshot. If the daemon is killed meanwhile, the next one completes what was begun,
or whoever next applies something to DIR, also if that was renamed. What is needed for that cannot be
deleted. 'snapfs check' says what could not be completed, with an ID; --drop gives that up, changes
nothing in DIR, and says what it leaves there, which may be files of yours.
Where files are immutable, or directories may not be written, that is a conflict. Owners and
attributes that the host does not allow are left out, and are told. What is mounted in DIR stays as
it is. The base is the state that was imported, or applied last; a rename in DIR itself is not known.

The lines printed are those of 'snapfs diff'; with --json, changes and conflicts are lists.
A paused workspace stays paused. A workspace that is mounted read-only is a conflict.

` + toGitHelp,
		Example: "  snapfs apply one --dry-run\n  snapfs apply one --to app\n  snapfs apply app --to ./app\n  snapfs apply --undo app\n" +
			"  snapfs apply one --to-git ~/src/app --branch one -m 'What one tried'",
		Annotations: exits(
			api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		Args: between(0, "FROM"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.From = args[0]
			}
			switch {
			case ours && theirs || (ours || theirs) && r.Conflicts != "":
				return usagef("--ours, --theirs and --conflicts exclude each other")
			case ours:
				r.Conflicts = api.ConflictOurs
			case theirs:
				r.Conflicts = api.ConflictTheirs
			}
			if r.Undo && r.From != "" && r.To == "" {
				r.From, r.To = "", r.From
			}
			if given, err := git.check(cmd, r); err != nil {
				return err
			} else if given {
				return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
					return git.run(cmd.Context(), a, c)
				})
			}
			if r.From == "" && !r.Undo && r.Drop == "" {
				return usagef("name the workspace or the snapshot that is to be applied")
			}
			if r.Undo && r.To == "" {
				return usagef("name the workspace or the directory from which the last apply is to be taken back")
			}
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				r.Access = a.access()
				return a.apply(cmd.Context(), c, r)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&r.To, "to", "", "workspace or directory `NAME` that is changed (default: the one that FROM was made from)")
	f.StringVar(&r.Base, "base", "", "snapshot `SNAP` that both stem from (default: the newest one known)")
	f.StringVar(&r.Conflicts, "conflicts", "", "what becomes of conflicts: ours, theirs or markers; `HOW`")
	f.BoolVar(&ours, "ours", false, "where there is a conflict, leave what NAME has")
	f.BoolVar(&theirs, "theirs", false, "where there is a conflict, take what FROM has")
	f.BoolVar(&r.Serializable, "serializable", false, "refuse if NAME has changed what programs in FROM have read")
	f.BoolVarP(&r.DryRun, "dry-run", "n", false, "only show what would change")
	f.BoolVar(&r.Undo, "undo", false, "take the last apply to NAME back")
	f.StringVar(&r.Drop, "drop", "", "give the interrupted apply `ID` to a directory up")
	f.BoolVar(&r.Force, "force", false, "with --undo, also if what is taken back was changed since")
	git.flags(cmd)
	return cmd
}

// apply calls the service and says what came of it.
func (a *app) apply(ctx context.Context, c api.API, r api.ApplyRequest) error {
	meter := a.newMeter()
	r.Progress = meter.report()
	got, err := c.Apply(ctx, r)
	meter.done()
	if err != nil {
		return err
	}
	refused := r.Serializable && !r.Undo && len(got.StaleReads)+len(got.ReadGaps) > 0
	target := got.Workspace
	if got.Directory != "" {
		target = got.Directory
	}
	switch {
	case len(got.Conflicts) > 0 || refused:
	case r.Drop != "":
		a.noteDropped(got)
	case r.Undo && got.Directory != "":
		if len(got.Left) == 0 {
			a.note("%s is as it was before the last apply", target)
		} else {
			a.note("%s is as it was before the last apply, but for this:", target)
		}
		a.noteLeft(got)
		if got.Kept != "" {
			a.note("what was changed since is in snapshot %s", got.Kept)
		}
	case r.Undo:
		a.note("%s is as it was before the last apply; '%s' brings that back",
			got.Workspace, a.hint("rollback "+got.Workspace+" "+got.Before))
		if got.Kept != "" {
			a.note("what was unsaved is snapshot %s", got.Kept)
		}
	case len(got.Changes) == 0:
		a.note("%s has everything already", target)
	case r.DryRun:
		a.note("%s would change in %s", plural(int64(len(got.Changes)), "file"), target)
	default:
		a.note("%s changed in %s; '%s' takes it back",
			plural(int64(len(got.Changes)), "file"), target, a.hint("apply --undo "+target))
	}
	a.noteSkips(got)
	if !refused {
		a.noteStale(target, got)
	}
	if err := a.result(got, func(w io.Writer) error { return printApplied(w, got, refused) }); err != nil {
		return err
	}
	if n := len(got.Conflicts); n > 0 {
		if !slices.ContainsFunc(got.Conflicts, func(x api.ApplyConflict) bool { return x.Kind != "refused" }) {
			return failure(api.ErrConflict, "nothing was changed: the host does not let %s be changed in %s: make that possible, "+
				"for the user who calls, then repeat it", plural(int64(n), "path"), target)
		}
		return failure(api.ErrConflict, "nothing was changed: %s: choose --ours, --theirs or --conflicts=markers, or change "+
			"one side", plural(int64(n), "conflict"))
	}
	if refused {
		return unserializable(target, got)
	}
	return nil
}

// noteDropped says what an apply that was given up leaves.
func (a *app) noteDropped(got api.ApplyResult) {
	a.note("the interrupted apply to %s was given up: a part of it is there", plain(got.Directory))
	if got.Before != "" {
		a.note("what was there before, as far as it was to be changed, is in snapshot %s, and what it was to be in %s; they expire",
			got.Before, got.After)
	}
	if len(got.Left) > 0 {
		a.note("move this to where it belongs, then remove the directory that it was in:")
	}
	a.noteLeft(got)
}

// noteLeft says what stays in a directory.
func (a *app) noteLeft(got api.ApplyResult) {
	for _, x := range got.Left {
		a.note("%s: %s", quote(rawPath(x.Path, x.RawPath)), plain(x.Detail))
	}
}

// noteSkips says what the host did not let a directory have.
func (a *app) noteSkips(got api.ApplyResult) {
	for _, s := range got.Skips {
		a.note("%s: %s could not be set: %s", quote(rawPath(s.Path, s.RawPath)), s.What, plain(s.Error))
	}
}

// printApplied writes the changes, or the conflicts.
func printApplied(w io.Writer, got api.ApplyResult, refused bool) error {
	var b strings.Builder
	if refused {
		for _, x := range got.StaleReads {
			fmt.Fprintf(&b, "S %s\n", staleLine(x))
		}
	}
	for _, x := range got.Conflicts {
		fmt.Fprintf(&b, "C %s (%s: %s)\n", quote(rawPath(x.Path, x.RawPath)), x.Kind, plain(x.Detail))
	}
	if len(got.Conflicts) == 0 && !refused {
		for _, ch := range got.Changes {
			err := printChange(&b, api.Change{
				Kind: ch.Kind, Path: ch.Path, RawPath: ch.RawPath, OldPath: ch.OldPath, RawOldPath: ch.RawOldPath,
			})
			if err != nil {
				return err
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
