package gitcommit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"snapfs/sandbox/api"
)

// Repo is a repository in which a commit is made, by one goroutine.
type Repo struct {
	Top string // the work tree without symbolic links; "" if there is none

	dir     string   // as named
	gitDir  string   // HEAD and index are there
	objects string   // the directory of objects
	tmp     string   // everything of ours
	env     []string // of git in the work directory
	work    *os.Root // the work directory
}

// Open finds the repository that a directory is, or lies in. With dry, objects are written elsewhere, and vanish.
func Open(ctx context.Context, dir string, dry bool) (_ *Repo, err error) {
	r := &Repo{dir: dir}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return nil, fmt.Errorf("%w: no directory %s", api.ErrNotFound, api.Quoted(dir))
	}
	if r.gitDir, err = r.find(ctx, "--absolute-git-dir"); err != nil {
		return nil, err
	}
	if r.objects, err = r.find(ctx, "--git-path", "objects"); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(r.objects) {
		r.objects = filepath.Join(dir, r.objects)
	}
	if inside, err := r.find(ctx, "--is-inside-work-tree"); err == nil && inside == "true" {
		top, err := r.find(ctx, "--show-toplevel")
		if err == nil {
			top, err = filepath.EvalSymlinks(top)
		}
		if err != nil {
			return nil, err
		}
		r.Top = top
	}
	if r.tmp, err = os.MkdirTemp("", "snapfs-git-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	for _, name := range []string{"tree", "objects"} {
		if err := os.Mkdir(filepath.Join(r.tmp, name), 0o700); err != nil {
			return nil, err
		}
	}
	if r.work, err = os.OpenRoot(filepath.Join(r.tmp, "tree")); err != nil {
		return nil, err
	}
	r.env = append(environment(), "GIT_DIR="+r.gitDir, "GIT_WORK_TREE="+r.work.Name(), "GIT_INDEX_FILE="+filepath.Join(r.tmp, "index"))
	if dry {
		r.env = append(r.env, "GIT_OBJECT_DIRECTORY="+filepath.Join(r.tmp, "objects"),
			"GIT_ALTERNATE_OBJECT_DIRECTORIES="+listed(r.objects))
	}
	return r, nil
}

// listed spells a path in a list of paths as git does.
func listed(path string) string {
	if !strings.ContainsAny(path, `:"`) {
		return path
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

// Close removes everything temporary.
func (r *Repo) Close() error {
	var err error
	if r.work != nil {
		err = r.work.Close()
	}
	return errors.Join(err, os.RemoveAll(r.tmp))
}

// find asks what belongs to the directory. It is here that git refuses a repository of another user.
func (r *Repo) find(ctx context.Context, args ...string) (string, error) {
	out, err := run(ctx, command{dir: r.dir, env: environment(), args: append([]string{"rev-parse"}, args...)})
	if err != nil {
		return "", fmt.Errorf("%s: %w", api.Quoted(r.dir), err)
	}
	return strings.TrimSuffix(out, "\n"), nil
}

// git runs git in the work directory.
func (r *Repo) git(ctx context.Context, in string, args ...string) (string, error) {
	return run(ctx, command{dir: r.work.Name(), env: r.env, in: in, args: args})
}

// Commit resolves a name of a commit to its id; ErrNotFound if the repository has none of that name.
func (r *Repo) Commit(ctx context.Context, rev string) (string, error) {
	out, err := r.git(ctx, "", "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	var failed *gitError
	if errors.As(err, &failed) && failed.text == "" {
		return "", fmt.Errorf("%w: the repository %s has no commit %s", api.ErrNotFound, api.Quoted(r.dir), api.Quoted(rev))
	}
	return strings.TrimSpace(out), err
}

// Head is the commit that is checked out; "" if there is none yet.
func (r *Repo) Head(ctx context.Context) (string, error) {
	id, err := r.Commit(ctx, "HEAD")
	if errors.Is(err, api.ErrNotFound) {
		if _, refErr := r.git(ctx, "", "symbolic-ref", "--quiet", "HEAD"); refErr == nil {
			return "", nil
		}
	}
	return id, err
}

// Worktree is the name by which the HEAD of a linked work tree can be resolved, if a .git file that names dir is that
// of one of this repository's; else "".
func (r *Repo) Worktree(ctx context.Context, dir string) (string, error) {
	common, err := r.find(ctx, "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return "", err
	}
	if common, err = filepath.EvalSymlinks(common); err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", nil //nolint:nilerr // it is not there
	}
	if filepath.Dir(dir) != filepath.Join(common, "worktrees") {
		return "", nil
	}
	return "worktrees/" + filepath.Base(dir) + "/HEAD", nil
}

// CheckBranch refuses names that no branch can have, ErrInvalid, and that of one that exists or that the HEAD of a work
// tree is to become with its first commit, ErrConflict.
func (r *Repo) CheckBranch(ctx context.Context, branch string) error {
	var failed *gitError
	_, err := r.git(ctx, "", "check-ref-format", "refs/heads/"+branch)
	if strings.HasPrefix(branch, "-") || branch == "HEAD" || errors.As(err, &failed) {
		return fmt.Errorf("%w: no branch can be called %s", api.ErrInvalid, api.Quoted(branch))
	}
	if err != nil {
		return err
	}
	_, err = r.git(ctx, "", "show-ref", "--verify", "--quiet", "refs/heads/"+branch)
	if err == nil {
		return fmt.Errorf("%w: branch %s exists, and is left as it is: choose another name", api.ErrConflict,
			api.Quoted(branch))
	}
	if !errors.As(err, &failed) {
		return err
	}
	trees, err := r.git(ctx, "", "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return err
	}
	if slices.Contains(strings.Split(trees, "\x00"), "branch refs/heads/"+branch) {
		return fmt.Errorf("%w: a work tree is on branch %s, which has no commit yet: choose another name", api.ErrConflict,
			api.Quoted(branch))
	}
	return nil
}
