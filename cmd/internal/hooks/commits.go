package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Origin says where a worktree that snapfs has made comes from. It is in a file beside the worktree.
type Origin struct {
	Project string `json:"project"`
	Path    string `json:"path"` // of the project in the worktree
}

// OriginFile is where the origin of the worktree that is mounted at a directory is.
func OriginFile(at string) string { return at + ".json" }

// Write writes the origin of the worktree that is mounted at a directory.
func (o Origin) Write(at string) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(OriginFile(at), append(text, '\n'), 0o600)
}

// ReadOrigin reads what Write has written.
func ReadOrigin(at string) (Origin, error) {
	var o Origin
	text, err := os.ReadFile(OriginFile(at))
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	return o, err
}

// repositoryIn is the directory with the repository of git that a directory belongs to, not above top; "" if there is
// none.
func repositoryIn(dir, top string) (string, fs.FileInfo) {
	for ; below(dir, top); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, info
		}
		if dir == "/" {
			break
		}
	}
	return "", nil
}

// CopiedWhole refuses a project of which a copy would share HEAD, index or files with it: the repository of a linked
// worktree or of a submodule is elsewhere.
func CopiedWhole(ctx context.Context, project, top string) error {
	repository, info := repositoryIn(project, top)
	if repository == "" {
		return nil
	}
	if !info.IsDir() {
		return fmt.Errorf("the repository of %s is elsewhere: its .git is no directory", repository)
	}
	if tree, err := runGit(ctx, repository, "config", "core.worktree"); err == nil {
		return fmt.Errorf("the repository of %s is for files elsewhere (core.worktree): %s", repository, strings.TrimSpace(tree))
	}
	return nil
}

// SaveCommits gives the repository of a worktree's project the commits that only the worktree has, below
// refs/snapfs/NAME. No branch, HEAD or index is touched.
func SaveCommits(ctx context.Context, name, at string, origin Origin) error {
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
		lacks, err := runGit(ctx, origin.Project, "rev-list", "-n", "1", commit, "--not", "--all")
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
		_, err = runGit(ctx, origin.Project, fetch...)
	}
	return err
}

// gitRefs is what a repository's references and its HEAD name.
func gitRefs(ctx context.Context, dir string) (map[string]string, error) {
	out, err := runGit(ctx, dir, "for-each-ref", "--format=%(refname) %(objectname)")
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for l := range strings.Lines(out) {
		name, object, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		refs[name] = object
	}
	if head, err := runGit(ctx, dir, "rev-parse", "-q", "--verify", "HEAD"); err == nil { // it may have no commit yet
		refs["HEAD"] = strings.TrimSpace(head)
	}
	return refs, nil
}

// GitWorktree makes a worktree as Claude Code does without a hook: with git, in the directory .claude/worktrees of the
// project. It gives the path, also of one that is there already.
func GitWorktree(ctx context.Context, project, name string) (string, error) {
	path := filepath.Join(project, ".claude", "worktrees", name)
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	branch := "worktree-" + name
	if _, err := runGit(ctx, project, "worktree", "add", "-q", "-b", branch, path); err != nil {
		if _, err := runGit(ctx, project, "worktree", "add", "-q", path, branch); err != nil {
			return "", err
		}
	}
	return path, nil
}

// RemoveGitWorktree has git remove a worktree, which it does if nothing in it would be lost.
func RemoveGitWorktree(ctx context.Context, project, path string) error {
	_, err := runGit(ctx, project, "worktree", "remove", path)
	return err
}

// gitTime bounds a command of git.
const gitTime = 50 * time.Second

// runGit runs a command of git in a directory, and gives what it printed.
func runGit(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}
