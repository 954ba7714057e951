package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

func (a *app) turnCommand() *cobra.Command {
	var r api.TurnRequest
	cmd := &cobra.Command{
		Use:   "turn NAME",
		Short: "freeze a workspace as its next turn, if something changed",
		Long: `Freezes workspace NAME as its next turn, and prints the id. A turn is a snapshot with a number and without
a name, made after each step of an agent, say, so that 'snapfs undo' can take that step back. If
nothing changed since the last snapshot, nothing is stored: the id of that is printed, and a message
says so. Nothing is printed for a workspace that is as it was made.

All that takes a snapshot takes a turn: diff, rollback, branch, export, delete, prune.`,
		Example:     "  snapfs turn app -m \"tests pass\"\n  snapfs turn app --json",
		Args:        exact("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Access, r.Workspace = a.access(), args[0]
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				got, err := c.Turn(cmd.Context(), r)
				if err != nil {
					return err
				}
				switch {
				case got.Snapshot == nil:
					a.note("nothing changed: %s is as it was made", got.Workspace)
				case got.Unchanged && got.Turn > 0:
					a.note("nothing changed since turn %d of %s", got.Turn, got.Workspace)
				case got.Unchanged:
					a.note("nothing changed in %s since snapshot %s", got.Workspace, snapshotWord(*got.Snapshot))
				default:
					a.note("turn %d of %s", got.Turn, got.Workspace)
				}
				return a.result(got, func(w io.Writer) error {
					if got.Snapshot == nil {
						return nil
					}
					return line(got.Snapshot.ID)(w)
				})
			})
		},
	}
	cmd.Flags().StringVarP(&r.Message, "message", "m", "", "`TEXT` that is shown with the turn")
	return cmd
}

// snapshotWord is how a person names a snapshot: by its name, if it has one.
func snapshotWord(s api.Snapshot) string {
	if s.Name == "" {
		return s.ID
	}
	return s.Workspace + ":" + s.Name
}

func (a *app) turnsCommand() *cobra.Command {
	r := api.TurnsRequest{Stat: true}
	noStat := false
	cmd := &cobra.Command{
		Use:   "turns NAME",
		Short: "list the turns of a workspace",
		Long: `Lists the turns of workspace NAME, newest first, with how many files each changed, and how many lines it
added and deleted. PLACE says where the workspace is:

  past     'snapfs undo' leads there
  current  the workspace was there last; what changed since is the next turn
  undone   'snapfs redo' leads there
  cut      the workspace went on another way; 'snapfs rollback NAME ID' leads there. With --all

A dash stands for what was not counted yet; the next call goes on. Of more than 2000 files (2000+) lines
are not counted.`,
		Example:     "  snapfs turns app\n  snapfs turns app --all --limit 100 --json",
		Args:        exact("NAME"),
		Annotations: exits(api.ExitNotFound, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.Limit < 1 {
				return usagef("--limit %d: 1 to %d", r.Limit, maxLimit)
			}
			if r.Limit > maxLimit {
				a.note("--limit %d is reduced to %d; --after shows more", r.Limit, maxLimit)
				r.Limit = maxLimit
			}
			r.Access, r.Workspace, r.Stat = a.access(), args[0], !noStat
			return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
				page, err := c.Turns(cmd.Context(), r)
				if err != nil {
					return err
				}
				if err := a.result(page, func(w io.Writer) error { return turnTable(w, page) }); err != nil {
					return err
				}
				if page.More {
					a.note("there are more: continue with --after %s", page.Turns[len(page.Turns)-1].Snapshot)
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&r.Limit, "limit", 20, "show at most `N`; 100 is the most")
	f.StringVar(&r.After, "after", "", "continue after `ID`, which the message after the previous page names")
	f.BoolVar(&r.All, "all", false, "those that were cut off, too")
	f.BoolVar(&noStat, "no-stat", false, "do not count what they changed")
	return cmd
}

func turnTable(w io.Writer, page api.TurnPage) error {
	rows := make([][]string, 0, len(page.Turns))
	for _, t := range page.Turns {
		files, added, deleted := "-", "-", "-"
		if t.Stat != nil && t.Stat.More {
			files = fmt.Sprintf("%d+", t.Stat.Files)
		} else if t.Stat != nil {
			files = strconv.Itoa(t.Stat.Files)
			added, deleted = fmt.Sprintf("+%d", t.Stat.Additions), fmt.Sprintf("-%d", t.Stat.Deletions)
		}
		rows = append(rows, []string{
			strconv.Itoa(t.Number), t.Snapshot, string(t.Place), moment(t.CreatedAt), files, added, deleted,
			orDash(quoteIf(t.Message)),
		})
	}
	return table(w, "TURN ID PLACE CREATED FILES ADDED DELETED MESSAGE", rows)
}

func (a *app) undoCommand() *cobra.Command {
	return a.stepCommand(&cobra.Command{
		Use:   "undo NAME [N]",
		Short: "take back the last turns of a workspace, in place",
		Long: `Sets workspace NAME back by one turn, or by N, mounted or not, as 'snapfs rollback' does. Changes since the
last turn become a turn of their own before, and count as one: the first undo takes back just them.
'snapfs redo' goes forward again, until something else changes. Even then nothing is lost: 'snapfs
turns --all' lists the turns that were cut off.

A snapshot that was taken between two turns is a step, too, if something changed.`,
		Example: "  snapfs undo app\n  snapfs undo . 3",
	}, (*client.Client).Undo)
}

func (a *app) redoCommand() *cobra.Command {
	return a.stepCommand(&cobra.Command{
		Use:   "redo NAME [N]",
		Short: "bring back turns that were undone, in place",
		Long: `Sets workspace NAME forward by one turn that was undone, or by N, mounted or not. What changed since is
kept as a snapshot without a name, which expires after 24 hours, and whose id is printed.`,
		Example: "  snapfs redo app\n  snapfs redo . 3",
	}, (*client.Client).Redo)
}

// stepCommand completes undo and redo.
func (a *app) stepCommand(
	cmd *cobra.Command, step func(*client.Client, context.Context, api.UndoRequest) (api.UndoResult, error),
) *cobra.Command {
	cmd.Args = between(1, "NAME", "N")
	cmd.Annotations = exits(api.ExitNotFound, api.ExitConflict, api.ExitRefused, api.ExitCorrupt, api.ExitUnavailable)
	var force bool
	cmd.Flags().BoolVar(&force, "force", false, forceAside)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := api.UndoRequest{Access: a.access(), Workspace: args[0], Steps: 1, Force: force}
		if len(args) > 1 {
			n, err := strconv.Atoi(args[1])
			if err != nil || n < 1 {
				return usagef("N %q: a whole number, 1 or more", args[1])
			}
			r.Steps = n
		}
		return a.withClient(cmd.Context(), existingHome, func(c *client.Client) error {
			got, err := step(c, cmd.Context(), r)
			if err != nil {
				return err
			}
			where := "snapshot " + got.Head
			if got.Turn > 0 {
				where = fmt.Sprintf("turn %d", got.Turn)
			}
			a.note("%s is at %s; %d to undo, %d to redo", got.ID, where, got.CanUndo, got.CanRedo)
			switch {
			case got.Kept == nil:
			case got.KeptTurn > 0:
				a.note("what was unsaved is turn %d, snapshot %s; '%s' brings it back",
					got.KeptTurn, got.Kept.ID, a.hint("rollback "+got.ID+" "+got.Kept.ID))
			default:
				a.note("what was unsaved is snapshot %s until %s; '%s' brings it back",
					got.Kept.ID, moment(*got.Kept.ExpiresAt), a.hint("rollback "+got.ID+" "+got.Kept.ID))
			}
			return a.result(got, line(got.Head))
		})
	}
	return cmd
}
