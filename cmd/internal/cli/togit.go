package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"snapfs/cmd/internal/gitapply"
	"snapfs/sandbox/api"
)

// toGitHelp is what the help of apply says of --to-git.
const toGitHelp = `With --to-git REPO --branch B, the changes become one commit on a new branch B of the git repository
REPO, and nothing else there changes: neither index, HEAD, stash and work tree nor other branches.
It is for what began with the work tree of REPO, or a directory in it. The commit has what was
changed in FROM since it began, or since --base SNAP, also what was committed there. Its parent is
the commit that was checked out then; for a directory in a work tree it is REPO's HEAD. --parent REV
names another one. Files are taken as a whole, and the parent is where FROM began: there are no
conflicts here, 'git merge B' tells them. Files that git does not know come along if they have
changed and git ignores them nowhere. Submodules stay as they are, and repositories inside FROM,
sockets, pipes and devices are left out; standard error says so. So do empty directories and
permissions other than "executable". Filters, ends of lines and core.fileMode are as with 'git add',
so that git-lfs takes its files. Hooks do not run, and the commit is not signed. Names that git
refuses, and a branch that exists (exit 4), are refused. -m TEXT is the message, --prefix DIR where
the directory lies in REPO if that is not known, and --dry-run makes no commit.`

// toGit is a call of apply --to-git.
type toGit struct{ r gitapply.Request }

// flags adds the flags of --to-git.
func (t *toGit) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.r.Repository, "to-git", "", "git repository `REPO` that gets a commit on a new branch")
	f.StringVar(&t.r.Branch, "branch", "", "with --to-git, name `B` of the new branch")
	f.StringVarP(&t.r.Message, "message", "m", "", "with --to-git, message `TEXT` of the commit")
	f.StringVar(&t.r.Parent, "parent", "", "with --to-git, commit `REV` that the new one follows")
	f.StringVar(&t.r.Prefix, "prefix", "", "with --to-git, directory `DIR` of REPO that FROM began with; . for all of it")
}

// check takes over what it shares with other ways to apply, and reports whether the call is for git.
func (t *toGit) check(cmd *cobra.Command, r api.ApplyRequest) (given bool, err error) {
	changed := cmd.Flags().Changed
	if !changed("to-git") {
		for _, name := range []string{"branch", "message", "parent", "prefix"} {
			if changed(name) {
				return false, usagef("--%s is for --to-git", name)
			}
		}
		return false, nil
	}
	t.r.From, t.r.Base, t.r.DryRun = r.From, r.Base, r.DryRun
	switch {
	case r.To != "" || r.Undo || r.Force || r.Conflicts != "" || r.Serializable:
		return true, usagef("--to-git makes a new branch: it takes --branch, --message, --parent, --prefix, --base and " +
			"--dry-run")
	case t.r.From == "":
		return true, usagef("name the workspace or the snapshot that is to be committed")
	case t.r.Branch == "":
		return true, usagef("--to-git needs --branch B, a branch that does not exist")
	case changed("message") && strings.TrimSpace(t.r.Message) == "":
		return true, usagef("empty --message")
	case filepath.IsAbs(t.r.Prefix) || t.r.Prefix != "" && !filepath.IsLocal(t.r.Prefix):
		return true, usagef("--prefix %s: it is no directory in the repository", quote(t.r.Prefix))
	}
	t.r.Repository, err = absolute("REPO", t.r.Repository)
	return true, err
}

// run makes the commit, and says what came of it.
func (t *toGit) run(ctx context.Context, a *app, c api.API) error {
	t.r.Access, t.r.Note = a.access(), a.note
	got, err := gitapply.Apply(ctx, metered{c, a}, t.r)
	if err != nil {
		return err
	}
	for _, l := range got.LeftOut {
		a.note("left out: %s (%s)", quote(l.Path), l.Why)
	}
	parent := cmp.Or(got.Parent, "nothing")
	files := plural(int64(got.Files), "file")
	switch {
	case got.Files == 0:
		a.note("nothing to commit: %s has no changes for git since its base", got.From)
	case t.r.DryRun:
		a.note("%s would change in a commit on %s", files, parent)
	default:
		a.note("branch %s is commit %s, with %s changed since %s", got.Branch, got.Commit, files, parent)
	}
	return a.result(got, func(w io.Writer) error {
		var b strings.Builder
		for _, ch := range got.Changes {
			fmt.Fprintf(&b, "%s %s\n", ch.Kind, quote(ch.Path))
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}
