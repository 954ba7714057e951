package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// worktreeOrigin says where a worktree of ours comes from. It is in a file beside the worktree.
type worktreeOrigin struct {
	Project string `json:"project"`
	Path    string `json:"path"` // of the project in the worktree
}

// originFile is where the origin of the worktree that is mounted at a directory is.
func originFile(at string) string { return at + ".json" }

func (o worktreeOrigin) write(at string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(originFile(at), append(text, '\n'), 0o600)
}

func readOrigin(at string) (worktreeOrigin, error) {
	var o worktreeOrigin
	text, err := os.ReadFile(originFile(at))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	return o, err
}

// repositoryIn is the directory with the repository of git that a directory belongs to, not above top; "" if there is
// none.
func repositoryIn(dir, top string) (string, fs.FileInfo) {
	for ; within(dir, top); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, info
		}
		if dir == "/" {
			break
		}
	}
	return "", nil
}

// copiedWhole refuses a project of which a copy would share HEAD, index or files with it: the repository of a linked
// worktree or of a submodule is elsewhere.
func copiedWhole(ctx context.Context, project, top string) error {
	repository, info := repositoryIn(project, top)
	if repository == "" {
		return nil
	}
	if !info.IsDir() {
		return fmt.Errorf("the repository of %s is elsewhere: its .git is no directory", repository)
	}
	if tree, err := git(ctx, repository, "config", "core.worktree"); err == nil {
		return fmt.Errorf("the repository of %s is for files elsewhere (core.worktree): %s", repository, strings.TrimSpace(tree))
	}
	return nil
}

// saveCommits gives the repository of a worktree's project the commits that only the worktree has, below
// refs/snapfs/NAME. No branch, HEAD or index is touched.
func saveCommits(ctx context.Context, name, at string, origin worktreeOrigin) error {
	repository, _ := repositoryIn(origin.Path, at)
	if repository == "" {
		return nil
	}
	there, err := gitRefs(ctx, repository)
	if err != nil || len(there) == 0 {
		return err
	}
	here, err := gitRefs(ctx, origin.Project)
	if err != nil {
		return err
	}
	had, saved := map[string]bool{}, map[string]bool{}
	for _, commit := range here {
		had[commit] = true
	}
	fetch := []string{
		"-c", "protocol.file.allow=always", "-c", "maintenance.auto=false", "-c", "gc.auto=0", "fetch", "-q", "--no-tags",
		"--no-write-fetch-head", "--no-recurse-submodules", repository,
	}
	n := len(fetch)
	add := func(ref, commit string) {
		// A commit that is missing makes rev-list fail.
		lacks, err := git(ctx, origin.Project, "rev-list", "-n", "1", commit, "--not", "--all")
		if err == nil && lacks == "" {
			return
		}
		to := "refs/snapfs/" + name + "/" + strings.TrimPrefix(ref, "refs/")
		if here[to] != "" { // of a worktree that had the same name
			to += "-" + commit
		}
		fetch = append(fetch, ref+":"+to)
		saved[commit] = true
	}
	for ref, commit := range there {
		if ref != "HEAD" && !had[commit] && !strings.HasPrefix(ref, "refs/remotes/") {
			add(ref, commit)
		}
	}
	if head := there["HEAD"]; head != "" && !had[head] && !saved[head] {
		add("HEAD", head)
	}
	if len(fetch) > n {
		_, err = git(ctx, origin.Project, fetch...)
	}
	return err
}

// gitRefs is what a repository's references and its HEAD name.
func gitRefs(ctx context.Context, dir string) (map[string]string, error) {
	out, err := git(ctx, dir, "for-each-ref", "--format=%(refname) %(objectname)")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for l := range strings.Lines(out) {
		name, object, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		refs[name] = object
	}
	if head, err := git(ctx, dir, "rev-parse", "-q", "--verify", "HEAD"); err == nil { // it may have no commit yet
		refs["HEAD"] = strings.TrimSpace(head)
	}
	return refs, nil
}
