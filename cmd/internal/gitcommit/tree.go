package gitcommit

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"snapfs/sandbox/api"
)

// Submodule is the type of a submodule's entry of a tree, as git writes modes.
const Submodule = "160000"

// Begin makes the index that of the parent's tree.
func (r *Repo) Begin(ctx context.Context, parent string) error {
	what := []string{"read-tree", parent}
	if parent == "" {
		what[1] = "--empty"
	}
	_, err := r.git(ctx, "", what...)
	return err
}

// Tracked gives the modes of those paths that the index has, and whether it has something below them.
func (r *Repo) Tracked(ctx context.Context, paths map[string]bool) (modes map[string]string, above map[string]bool, err error) {
	out, err := r.git(ctx, "", "ls-files", "--stage", "-z")
	if err != nil {
		return nil, nil, err
	}
	modes, above = map[string]string{}, map[string]bool{}
	for entry := range strings.SplitSeq(out, "\x00") {
		head, name, ok := strings.Cut(entry, "\t")
		if !ok {
			continue
		}
		if paths[name] {
			mode, _, _ := strings.Cut(head, " ")
			modes[name] = mode
		}
		for dir := path.Dir(name); dir != "." && !above[dir]; dir = path.Dir(dir) {
			if paths[dir] {
				above[dir] = true
			}
		}
	}
	return modes, above, nil
}

// Ignored tells which paths git ignores by the lists of the user and of the repository, and by the .gitignore files in
// the work directory.
func (r *Repo) Ignored(ctx context.Context, paths []string) (map[string]bool, error) {
	out, err := r.git(ctx, listOf(paths), "check-ignore", "--no-index", "-z", "--stdin")
	var failed *gitError
	if errors.As(err, &failed) && failed.code == 1 { // none
		return nil, nil
	}
	ignored := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		ignored[name] = true
	}
	return ignored, err
}

// Stage removes paths from the index, and puts others into it as they are in the work directory.
func (r *Repo) Stage(ctx context.Context, remove, add []string) error {
	pack, err := r.packs(ctx, len(add))
	if err != nil {
		return err
	}
	for _, step := range []struct {
		paths []string
		args  []string
	}{
		{remove, []string{"update-index", "-z", "--force-remove", "--stdin"}},
		{add, append(pack, "update-index", "-z", "--add", "--replace", "--stdin")},
	} {
		if len(step.paths) == 0 {
			continue
		}
		if _, err := r.git(ctx, listOf(step.paths), step.args...); err != nil {
			return err
		}
	}
	return nil
}

// packs gives the options with which git writes many files as one pack, six times faster than one by one. It does that
// for what it takes for large files, since 2.37 for all files of one call. Few files are better not in a pack.
func (r *Repo) packs(ctx context.Context, files int) ([]string, error) {
	const many = 100 // as git when it fetches
	if files <= many {
		return nil, nil
	}
	text, err := r.git(ctx, "", "version")
	if err != nil {
		return nil, err
	}
	var major, minor int
	if _, err := fmt.Sscanf(text, "git version %d.%d", &major, &minor); err != nil || major < 2 || major == 2 && minor < 38 {
		return nil, nil //nolint:nilerr // it is slower without
	}
	return []string{"-c", "core.bigFileThreshold=1"}, nil
}

// listOf is a list of paths as git reads it.
func listOf(paths []string) string {
	if len(paths) == 0 {
		return ""
	}
	return strings.Join(paths, "\x00") + "\x00"
}

// Change is a difference of two trees: A added, M modified, D deleted, T type changed.
type Change struct{ Kind, Path string }

// Tree writes the index as a tree, and tells how it differs from the parent's.
func (r *Repo) Tree(ctx context.Context, parent string) (id string, changes []Change, err error) {
	if id, err = r.git(ctx, "", "write-tree", "--missing-ok"); err != nil {
		return "", nil, err
	}
	id = strings.TrimSpace(id)
	from := parent
	if from == "" {
		if from, err = r.git(ctx, "", "hash-object", "-t", "tree", "--stdin"); err != nil {
			return "", nil, err
		}
	}
	out, err := r.git(ctx, "", "diff-tree", "-r", "-z", "--no-renames", "--name-status", strings.TrimSpace(from), id)
	if err != nil {
		return "", nil, err
	}
	fields := strings.Split(out, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		changes = append(changes, Change{Kind: fields[i], Path: fields[i+1]})
	}
	return id, changes, nil
}

// Make makes the commit, and the branch if none has its name: else ErrConflict.
func (r *Repo) Make(ctx context.Context, branch, tree, parent, message string) (string, error) {
	args := []string{"commit-tree", tree}
	if parent != "" {
		args = append(args, "-p", parent)
	}
	id, err := r.git(ctx, message+"\n", args...)
	if err != nil {
		return "", err
	}
	id = strings.TrimSpace(id)
	// An empty old value means that there must be none.
	_, err = r.git(ctx, "", "update-ref", "--no-deref", "-m", "snapfs: made", "refs/heads/"+branch, id, "")
	var failed *gitError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("%w: branch %s cannot be made: %w", api.ErrConflict, api.Quoted(branch), err)
	}
	return id, err
}
