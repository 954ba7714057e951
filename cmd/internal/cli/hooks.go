package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"snapfs/cmd/internal/hooks"
	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// hookResult is what --json prints.
type hookResult struct {
	Tool  string   `json:"tool"`
	Files []string `json:"files"` // that were changed, made or removed
}

func (a *app) hooksCommand() *cobra.Command {
	worktrees := false
	cmd := &cobra.Command{
		Use:   "hooks ACTION TOOL DIR",
		Short: "have a tool make a turn after each of its steps",
		Long: `ACTION install has TOOL make a turn ('snapfs turn') after each of its steps in the directory DIR, that of a
project, if that is in a workspace. ACTION remove takes the hooks away again, and leaves everything else in
the files byte for byte as it is. Both print the files that they changed. To install twice is the same as
once. In a workspace, install makes a turn, so that 'snapfs undo' of a later turn leaves the hooks there.

  TOOL         files in DIR                  turns
  claude-code  .claude/settings.local.json   after each use of a tool, and at the end of each answer
  codex        .codex/hooks.json             as above; codex asks once whether to trust them
  cursor       .cursor/hooks.json            after each edit and shell command, and at the end
  git          its hooks                     after commit, checkout, merge, rebase and amend

Where install makes a file of a tool, it also puts it into .git/info/exclude, so that git does not commit it,
and remove takes that back. 'snapfs apply' of the workspace takes hooks along as it does all other files:
remove them before, where the directory that it came from is to have none.

With --worktrees, claude-code also has its worktrees ('claude --worktree', and agents with isolation) made
and removed by snapfs: each is a workspace with all that the project has, .env and node_modules included,
mounted in the directory HOME-worktrees beside the home, and named after the project and the worktree.
It has a repository of its own: git's branches and commits in it are not those of the project. Before it is
removed, commits that the project does not have are fetched into the project's repository, below
refs/snapfs/WORKTREE ('git for-each-ref refs/snapfs' lists them, 'git merge' takes them): no branch changes.
Where that fails, the worktree stays, and hooks.log says why. All else that it has is kept for 7 days, as by
'snapfs destroy'. Where snapfs cannot make one, git does: so in a project that is a linked worktree of git,
or a submodule.

Hooks that are there go on working: ours are put beside them. A file that is damaged, or that a symbolic
link leads to out of DIR, is refused and stays as it is. A hook of git that is there is renamed to
NAME.before-snapfs, and ours runs it, with its arguments, input and exit status; remove names it back. One
that is not executable stays, and ours is not put over it. git's hooks are refused where core.hooksPath has
them outside of the repository, and where husky makes them. If a tool wrote its file anew, remove takes out
what is ours there.

A hook never makes the tool fail, unless neither snapfs nor git can make a worktree; without snapfs, git makes
them. A turn takes ten seconds at most, a worktree two minutes. What goes wrong is in hooks.log of the home.
With --home and --session, or SNAPFS_HOME and SNAPFS_SESSION, the hooks use these.`,
		Example: "  snapfs hooks install claude-code /mnt/app\n  snapfs hooks install claude-code /mnt/app --worktrees\n" +
			"  snapfs hooks remove claude-code /mnt/app",
		Args:        exact("ACTION", "TOOL", "DIR"),
		ValidArgs:   []string{"install", "remove"},
		Annotations: exits(api.ExitNotFound, api.ExitConflict),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "install" && args[0] != "remove" {
				return usagef("ACTION %q: install or remove", args[0])
			}
			if !slices.Contains(hooks.Names(), args[1]) {
				return usagef("TOOL %q: claude-code, codex, cursor or git", args[1])
			}
			if worktrees && (args[0] != "install" || args[1] != "claude-code") {
				return usagef("--worktrees is for install claude-code")
			}
			dir, err := absolute("directory", args[2])
			if err != nil {
				return err
			}
			if dir, err = filepath.EvalSymlinks(dir); err != nil {
				return failure(api.ErrNotFound, "not found: directory %s: %v", quote(args[2]), err)
			}
			if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
				return failure(api.ErrNotFound, "not found: %s is no directory", quote(dir))
			}
			program := ""
			if args[0] == "install" {
				if program, err = a.hookProgram(); err != nil {
					return err
				}
			}
			r := hookResult{Tool: args[1], Files: []string{}}
			change := hooks.Change{Tool: args[1], Dir: dir, Program: program, Worktrees: worktrees, Note: a.note}
			if r.Files, err = change.Make(cmd.Context()); err != nil {
				return err
			}
			if len(r.Files) == 0 {
				a.note("nothing to change")
			} else if program != "" {
				a.turnOfHooks(cmd.Context(), dir, r.Tool)
			}
			return a.result(r, func(w io.Writer) error {
				var err error
				for _, file := range r.Files {
					err = errors.Join(err, line(file)(w))
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&worktrees, "worktrees", false, "have claude-code's worktrees made and removed by snapfs, too")
	return cmd
}

// turnOfHooks makes a turn of the workspace in which hooks were installed, if it is one.
func (a *app) turnOfHooks(ctx context.Context, dir, tool string) {
	if !mayBeWorkspace(dir) {
		return
	}
	err := a.withClient(ctx, existingHome, func(c *client.Client) error {
		ws, ok := a.workspaceAt(ctx, c, dir)
		if !ok {
			return nil
		}
		_, err := c.Turn(ctx, api.TurnRequest{Access: a.access(), Workspace: ws.ID, Message: "hooks install " + tool})
		return err
	})
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		a.note("warning: no turn was made, so 'undo' of the next one removes the hooks: %v", err)
	}
}

// hookProgram is how hooks call this program, up to the verb.
func (a *app) hookProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	program := "snapfs"
	if found, err := exec.LookPath(program); err != nil || !sameFile(found, self) {
		program = shellWord(self)
	}
	if a.homeGiven {
		program += " --home " + shellWord(a.home)
	}
	if a.session != "" {
		program += " --session " + shellWord(a.session)
	}
	return program, nil
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
