package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"snapfs/cmd/internal/gitcommit"
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
type toGit struct {
	repo, branch, message, parent, base, prefix string

	from   string
	dryRun bool
}

// gitResult is what apply --to-git prints.
type gitResult struct {
	From       string          `json:"from"`
	Repository string          `json:"repository"`
	Branch     string          `json:"branch"`
	Commit     string          `json:"commit,omitempty"` // "" if there is nothing to commit, or with --dry-run
	Parent     string          `json:"parent,omitempty"` // "" if the commit has none
	Tree       string          `json:"tree"`
	Base       string          `json:"base"` // the snapshot that FROM is compared with
	Files      int             `json:"files"`
	Changes    []gitChange     `json:"changes"`
	LeftOut    []gitLeftOut    `json:"left_out"`
	Applied    bool            `json:"applied"`
	paths      map[string]bool // left out already
}

// gitChange is a file of the commit.
type gitChange struct {
	Kind    string `json:"kind"` // A M D T
	Path    string `json:"path"`
	RawPath []byte `json:"raw_path,omitempty"`
}

// gitLeftOut is a changed file that is not in the commit, or a directory of such.
type gitLeftOut struct {
	Path    string `json:"path"`
	RawPath []byte `json:"raw_path,omitempty"`
	Why     string `json:"why"` // submodule, repository, special file
}

// leave notes that a path is left out.
func (g *gitResult) leave(at, why string) {
	if g.paths[at] {
		return
	}
	if g.paths == nil {
		g.paths = map[string]bool{}
	}
	g.paths[at] = true
	g.LeftOut = append(g.LeftOut, gitLeftOut{Path: at, RawPath: notUTF8(at), Why: why})
}

// flags adds the flags of --to-git.
func (t *toGit) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.repo, "to-git", "", "git repository `REPO` that gets a commit on a new branch")
	f.StringVar(&t.branch, "branch", "", "with --to-git, name `B` of the new branch")
	f.StringVarP(&t.message, "message", "m", "", "with --to-git, message `TEXT` of the commit")
	f.StringVar(&t.parent, "parent", "", "with --to-git, commit `REV` that the new one follows")
	f.StringVar(&t.prefix, "prefix", "", "with --to-git, directory `DIR` of REPO that FROM began with; . for all of it")
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
	t.from, t.base, t.dryRun = r.From, r.Base, r.DryRun
	switch {
	case r.To != "" || r.Undo || r.Force || r.Conflicts != "" || r.Serializable:
		return true, usagef("--to-git makes a new branch: it takes --branch, --message, --parent, --prefix, --base and " +
			"--dry-run")
	case t.from == "":
		return true, usagef("name the workspace or the snapshot that is to be committed")
	case t.branch == "":
		return true, usagef("--to-git needs --branch B, a branch that does not exist")
	case changed("message") && strings.TrimSpace(t.message) == "":
		return true, usagef("empty --message")
	case filepath.IsAbs(t.prefix) || t.prefix != "" && !filepath.IsLocal(t.prefix):
		return true, usagef("--prefix %s: it is no directory in the repository", quote(t.prefix))
	}
	t.repo, err = absolute("REPO", t.repo)
	return true, err
}

// commit makes a commit of what was changed.
type commit struct {
	toGit
	a    *app
	c    api.API
	git  *gitcommit.Repo
	res  gitResult
	base string // snapshot
	tree string // snapshot of FROM, or with a trial FROM itself

	specials map[string]bool // files of kinds that git cannot know, where it would look, by their paths in FROM
}

// run makes the commit, and says what came of it.
func (t *toGit) run(ctx context.Context, a *app, c api.API) (err error) {
	m := &commit{toGit: *t, a: a, c: c, specials: map[string]bool{}}
	if m.git, err = gitcommit.Open(ctx, t.repo, t.dryRun); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.git.Close()) }()
	if err := m.git.CheckBranch(ctx, t.branch); err != nil {
		return err
	}
	if err := m.make(ctx); err != nil {
		return err
	}
	for _, l := range m.res.LeftOut {
		a.note("left out: %s (%s)", quote(l.Path), l.Why)
	}
	parent := cmp.Or(m.res.Parent, "nothing")
	switch {
	case m.res.Files == 0:
		a.note("nothing to commit: %s has no changes for git since its base", t.from)
	case t.dryRun:
		a.note("%s would change in a commit on %s", plural(int64(m.res.Files), "file"), parent)
	default:
		a.note("branch %s is commit %s, with %s changed since %s", t.branch, m.res.Commit,
			plural(int64(m.res.Files), "file"), parent)
	}
	return a.result(m.res, func(w io.Writer) error {
		var b strings.Builder
		for _, ch := range m.res.Changes {
			fmt.Fprintf(&b, "%s %s\n", ch.Kind, quote(ch.Path))
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
}

// make makes the commit.
func (m *commit) make(ctx context.Context) error {
	where, err := m.findBase(ctx)
	if err != nil {
		return err
	}
	if err := m.freeze(ctx); err != nil {
		return err
	}
	if err := m.findParent(ctx, where); err != nil {
		return err
	}
	m.res.From, m.res.Repository, m.res.Branch, m.res.Base = m.from, m.repo, m.branch, m.base
	m.res.Changes, m.res.LeftOut = []gitChange{}, []gitLeftOut{}
	if err := m.git.Begin(ctx, m.res.Parent); err != nil {
		return err
	}
	remove, add, err := m.gather(ctx)
	if err != nil {
		return err
	}
	if err := m.git.Stage(ctx, remove, add); err != nil {
		return err
	}
	tree, changes, err := m.git.Tree(ctx, m.res.Parent)
	if err != nil {
		return err
	}
	m.res.Tree, m.res.Files = tree, len(changes)
	for _, ch := range changes {
		m.res.Changes = append(m.res.Changes, gitChange{Kind: ch.Kind, Path: ch.Path, RawPath: notUTF8(ch.Path)})
	}
	if len(changes) == 0 || m.dryRun {
		return nil
	}
	message := cmp.Or(m.message, "Changes of "+m.from)
	m.res.Commit, err = m.git.Make(ctx, m.branch, tree, m.res.Parent, message)
	m.res.Applied = err == nil
	return err
}

// findBase finds the snapshot with which FROM is compared, and the directory that it was imported from, if known.
func (m *commit) findBase(ctx context.Context) (where string, err error) {
	got, err := metered{m.c, m.a.newMeter()}.Base(ctx, api.BaseRequest{Access: m.a.access(), Of: []string{m.from}})
	if m.toGit.base == "" {
		m.base = got.Snapshot.ID
		return got.Path, err
	}
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		return "", err
	}
	o, err := m.c.Show(ctx, api.RefRequest{Access: m.a.access(), Ref: m.toGit.base})
	if err != nil {
		return "", err
	}
	if o.Snapshot == nil {
		return "", usagef("--base %s: it is no snapshot", quote(m.toGit.base))
	}
	m.base = o.Snapshot.ID
	return got.Path, nil
}

// keptCommitted is for how long what was committed stays a snapshot.
const keptCommitted = 7 * 24 * time.Hour

// freeze takes a snapshot of a workspace that is to be committed.
func (m *commit) freeze(ctx context.Context) error {
	m.tree = m.from
	o, err := m.c.Show(ctx, api.RefRequest{Access: m.a.access(), Ref: m.from})
	if err != nil {
		return err
	}
	if o.Snapshot != nil {
		m.tree = o.Snapshot.ID
	}
	if o.Workspace == nil || m.dryRun {
		return nil
	}
	s, err := m.c.Snapshot(ctx, api.SnapshotRequest{
		Access: m.a.access(), Workspace: m.from, TTL: keptCommitted, Description: "committed to branch " + m.branch,
	})
	m.tree = s.ID
	return err
}

// gather puts the changed files into the work directory, and tells which paths are to be removed and added.
func (m *commit) gather(ctx context.Context) (remove, add []string, err error) {
	all, err := m.changes(ctx)
	if err != nil {
		return nil, nil, err
	}
	want := map[string]bool{}
	for _, ch := range all {
		for at := m.at(ch.Path); at != "."; at = path.Dir(at) {
			want[at] = true
		}
	}
	modes, above, err := m.git.Tracked(ctx, want)
	if err != nil {
		return nil, nil, err
	}
	files := m.git.Files()
	defer func() { err = errors.Join(err, files.Close()) }()
	now := map[string]bool{} // what has contents, by its path in FROM
	if err := m.fetch(ctx, files, api.Part{Exclude: []string{"/.git"}, GitIgnore: true}, now); err != nil {
		return nil, nil, err
	}
	// What git knows it does not ignore.
	var missed []string
	for _, ch := range all {
		at := m.at(ch.Path)
		if ch.there && !ch.special && !now[ch.Path] && modes[at] != "" && modes[at] != gitcommit.Submodule {
			missed = append(missed, ch.Path)
		}
	}
	for part := range parts(missed) {
		if err := m.fetch(ctx, files, api.Part{Paths: part}, now); err != nil {
			return nil, nil, err
		}
	}
	if err := files.Close(); err != nil {
		return nil, nil, err
	}
	var unknown []string // to git
	for _, ch := range all {
		at := m.at(ch.Path)
		switch sub := submodule(at, modes); {
		case sub != "":
			m.res.leave(sub, "submodule")
		case ch.newDir:
		case !ch.there && modes[at] != "":
			remove = append(remove, at)
		case ch.special && modes[at] != "":
			remove = append(remove, at)
			m.res.leave(at, "special file")
		case m.specials[ch.Path]:
			m.res.leave(at, "special file")
		case now[ch.Path] && modes[at] != "":
			add = append(add, at)
		case now[ch.Path]:
			unknown = append(unknown, ch.Path)
		}
	}
	unknown, err = m.wanted(ctx, unknown, all, above)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range unknown {
		if name := refusedName(p); name != "" {
			return nil, nil, usagef("%s: git takes no file with the name %s: rename it, or have git ignore it", quote(p),
				quote(name))
		}
		add = append(add, m.at(p))
	}
	return remove, add, nil
}

// at is where a path of FROM is in the repository.
func (m *commit) at(p string) string { return path.Join(m.prefix, p) }

// gitPath is something that has changed, by its path in FROM.
type gitPath struct {
	Path    string
	there   bool // now
	special bool // git cannot know it
	newDir  bool // a directory that was not there
}

// changes lists what has changed.
func (m *commit) changes(ctx context.Context) (all []gitPath, err error) {
	seen := map[string]bool{}
	note := func(p gitPath) {
		if !seen[p.Path] {
			seen[p.Path] = true
			all = append(all, p)
		}
	}
	r := api.DiffRequest{Access: m.a.access(), A: m.base, B: m.tree, Part: api.Part{Exclude: []string{"/.git"}}}
	err = m.c.Diff(ctx, r, func(ch api.Change) error {
		p := gitPath{Path: ch.Path, there: ch.Kind != "D"}
		switch ch.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFLNK:
		case unix.S_IFDIR:
			if ch.Kind != "D" && ch.OldMode&unix.S_IFMT != unix.S_IFDIR || ch.Kind == "R" {
				all = append(all, gitPath{Path: ch.Path, newDir: true})
			}
			return nil
		default:
			p.special = p.there
		}
		if ch.OldPath != "" {
			note(gitPath{Path: ch.OldPath})
		}
		note(p)
		return nil
	})
	return all, err
}

// fetch puts the files of a part of FROM that have changed into the work directory.
func (m *commit) fetch(ctx context.Context, files *gitcommit.Files, part api.Part, now map[string]bool) error {
	r := api.DiffRequest{Access: m.a.access(), A: m.base, B: m.tree, Part: part, Contents: files}
	return metered{m.c, m.a.newMeter()}.Diff(ctx, r, func(ch api.Change) error {
		mode := ch.Mode & unix.S_IFMT
		switch {
		case ch.Kind == "D":
			return nil
		case mode != unix.S_IFREG && mode != unix.S_IFLNK:
			m.specials[ch.Path] = true
			return nil
		}
		now[ch.Path] = true
		return files.Begin(m.at(ch.Path), mode == unix.S_IFLNK, ch.Mode&unix.S_IXUSR != 0)
	})
}

// parts divides paths so that a request can have each part.
func parts(paths []string) func(yield func([]string) bool) {
	const most = 256 << 10 // bytes, of the megabyte that a request may have
	return func(yield func([]string) bool) {
		for len(paths) > 0 {
			n, size := 0, 0
			for n < len(paths) && (n == 0 || size+len(paths[n]) < most) {
				size += len(paths[n]) + 3
				n++
			}
			if !yield(paths[:n]) {
				return
			}
			paths = paths[n:]
		}
	}
}

// submodule is the submodule that a path is or lies in; "" if there is none.
func submodule(at string, modes map[string]string) string {
	for ; at != "."; at = path.Dir(at) {
		if modes[at] == gitcommit.Submodule {
			return at
		}
	}
	return ""
}

// wanted are those files that git does not know yet and would add.
func (m *commit) wanted(
	ctx context.Context, unknown []string, all []gitPath, above map[string]bool,
) (wanted []string, err error) {
	fresh := map[string]bool{} // directories that are new: what is in them is new, too
	inGit := map[string]bool{} // directories with a .git
	for _, p := range all {
		if p.newDir {
			fresh[p.Path] = true
		}
		if dir, name := path.Split(p.Path); name == ".git" && (p.there || p.newDir) {
			inGit[path.Clean(dir)] = true
		}
	}
	asked := map[string]bool{}
	repository := func(dir string) (bool, error) {
		if asked[dir] || fresh[dir] || above[m.at(dir)] {
			return inGit[dir], nil
		}
		asked[dir] = true
		err := m.c.Files(ctx, m.file(m.tree, dir+"/.git"), func(api.File) error { return nil })
		if errors.Is(err, api.ErrNotFound) {
			return inGit[dir], nil
		}
		inGit[dir] = err == nil
		return inGit[dir], err
	}
	for _, p := range unknown {
		inside := ""
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			is, err := repository(dir)
			if err != nil {
				return nil, err
			}
			if is {
				inside = dir
			}
		}
		if inside != "" {
			m.res.leave(m.at(inside), "repository")
			continue
		}
		wanted = append(wanted, p)
	}
	return m.unignored(ctx, wanted)
}

// unignored leaves out what git ignores by lists that are not in the tree.
func (m *commit) unignored(ctx context.Context, paths []string) ([]string, error) {
	list := func() (map[string]bool, error) {
		var in []string
		for _, p := range paths {
			in = append(in, m.at(p))
		}
		if len(in) == 0 {
			return nil, nil
		}
		return m.git.Ignored(ctx, in)
	}
	ignored, err := list()
	if len(ignored) == 0 || err != nil {
		return paths, err
	}
	// The .gitignore files, of which the work directory has only those that have changed, may take them in again.
	if err := m.fetchIgnoreFiles(ctx, slices.Sorted(maps.Keys(ignored))); err != nil {
		return nil, err
	}
	if ignored, err = list(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(paths, func(p string) bool { return ignored[m.at(p)] }), nil
}

// fetchIgnoreFiles puts the .gitignore files above some paths into the work directory.
func (m *commit) fetchIgnoreFiles(ctx context.Context, ignored []string) (err error) {
	files := m.git.Files()
	defer func() { err = errors.Join(err, files.Close()) }()
	asked := map[string]bool{}
	for _, at := range ignored {
		p, err := filepath.Rel(cmp.Or(m.prefix, "."), at)
		if err != nil {
			return err
		}
		for dir := path.Dir(p); !asked[dir]; dir = path.Dir(dir) {
			asked[dir] = true
			name := path.Join(dir, ".gitignore")
			text, err := m.read(ctx, m.tree, name)
			switch {
			case errors.Is(err, api.ErrNotFound), errors.Is(err, api.ErrInvalid), errors.Is(err, api.ErrRefused):
				continue // there is none, or no file
			case err != nil:
				return err
			}
			if err := files.Begin(m.at(name), false, false); errors.Is(err, unix.EEXIST) {
				continue
			} else if err != nil {
				return err
			}
			if _, err := io.WriteString(files, text); err != nil {
				return err
			}
		}
	}
	return nil
}
