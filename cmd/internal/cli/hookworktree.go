package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"snapfs/cmd/internal/hooks"
	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

// worktreesDir is where the worktrees of tools are mounted. They cannot be in the project: no workspace is made from a
// directory in which others are mounted.
func (a *app) worktreesDir() string { return a.home + "-worktrees" }

// createWorktree makes a workspace that is a tool's worktree, with all that the project has, and gives its path. One that
// is there already is used again.
func (a *app) createWorktree(ctx context.Context, in hookInput) (string, error) {
	project, err := in.projectDir()
	if err != nil {
		return "", err
	}
	given := cmp.Or(in.Name, in.WorktreeName)
	if given == "" {
		return "", errors.New("the worktree has no name")
	}
	name := worktreeName(project, given)
	at := filepath.Join(a.worktreesDir(), name)
	if err := os.MkdirAll(a.worktreesDir(), 0o700); err != nil {
		return "", err
	}
	var path string
	err = a.withClient(ctx, anyHome, func(c *client.Client) error {
		mount := api.MountRequest{Access: a.access(), Workspace: name, Mountpoint: at, MakeMountpoint: true}
		path = at
		from, inside := a.workspaceAt(ctx, c, project)
		if inside {
			rest, err := filepath.Rel(from.Mountpoint, project)
			if err != nil || !filepath.IsLocal(rest) {
				return fmt.Errorf("workspace %s is mounted elsewhere than %s", from.ID, project)
			}
			path = filepath.Join(at, rest)
		}
		if err := hooks.CopiedWhole(ctx, project, cmp.Or(from.Mountpoint, project)); err != nil {
			return err
		}
		o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: name})
		switch {
		case err == nil && o.Workspace != nil && o.Workspace.Mountpoint == at:
			return nil
		case err != nil && !errors.Is(err, api.ErrNotFound):
			return err
		case err != nil && inside:
			_, err := c.Fork(ctx, api.ForkRequest{
				Access: a.access(), Workspace: from.ID, Name: name, Mountpoint: at, MakeMountpoint: true,
			})
			return err
		}
		_, err = a.up(ctx, c, api.CreateRequest{Name: name, Source: project}, mount)
		return err
	})
	if err != nil {
		return "", err
	}
	return path, hooks.Origin{Project: project, Path: path}.Write(at)
}

// workspaceAt is the workspace in whose mount a directory is.
func (a *app) workspaceAt(ctx context.Context, c *client.Client, dir string) (api.Workspace, bool) {
	if !mayBeWorkspace(dir) {
		return api.Workspace{}, false
	}
	ws, err := c.Locate(ctx, api.LocateRequest{Access: a.access(), Path: dir})
	return ws, err == nil && ws.Mountpoint != ""
}

// worktreeName is the name of the workspace for a worktree: that of the project and that of the worktree, as far as they
// can be in it, and what tells them apart from others.
func worktreeName(project, name string) string {
	sum := sha256.Sum256([]byte(project + "\x00" + name))
	var words []string
	for _, word := range []string{filepath.Base(project), name} {
		if word = plainWord(word); word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(append(words, fmt.Sprintf("w%x", sum[:3])), "-")
}

// plainWord is what of a word can be in the name of a workspace: at most 25 letters, digits and inner dashes.
func plainWord(word string) string {
	const most = 25
	var plain strings.Builder
	for _, r := range strings.ToLower(word) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			r = '-'
		}
		if plain.Len() < most {
			plain.WriteRune(r)
		}
	}
	return strings.Trim(plain.String(), "-")
}

// removeWorktree destroys the workspace that is a tool's worktree, once the project has its commits; what else it has is
// kept for some days. Worktrees of git are git's to remove, if nothing in them would be lost.
func (a *app) removeWorktree(ctx context.Context, in hookInput) error {
	path := filepath.Clean(in.WorktreePath)
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the worktree, %q, is not absolute", in.WorktreePath)
	}
	rest, err := filepath.Rel(a.worktreesDir(), path)
	if err != nil || rest == "." || !filepath.IsLocal(rest) {
		project, err := in.projectDir()
		if err != nil {
			return err
		}
		return hooks.RemoveGitWorktree(ctx, project, path)
	}
	name, _, _ := strings.Cut(rest, "/")
	at := filepath.Join(a.worktreesDir(), name)
	return a.withClient(ctx, existingHome, func(c *client.Client) error {
		o, err := c.Show(ctx, api.RefRequest{Access: a.access(), Ref: name})
		if err != nil {
			return err
		}
		if o.Workspace == nil || cmp.Or(o.Workspace.Mountpoint, o.Workspace.LastMountpoint) != at {
			return fmt.Errorf("no worktree is mounted at %s", at)
		}
		if o.Workspace.State == api.Unmounted {
			r := api.MountRequest{Access: a.access(), Workspace: name, Mountpoint: at, MakeMountpoint: true}
			if _, err := c.Mount(ctx, r); err != nil {
				return err
			}
		}
		origin, err := hooks.ReadOrigin(at)
		if err == nil {
			err = hooks.SaveCommits(ctx, name, at, origin)
		}
		if err != nil {
			return fmt.Errorf("worktree %s is not removed, as its commits would be lost ('destroy %s' removes it): %w", name, name, err)
		}
		busy := time.After(hookTime)
		for {
			_, err := c.Unmount(ctx, api.UnmountRequest{Access: a.access(), Workspace: name})
			if err == nil {
				break
			}
			if !errors.Is(err, api.ErrConflict) {
				return err
			}
			select { // a process of the tool may end in a moment
			case <-time.After(100 * time.Millisecond):
			case <-busy:
				return err
			case <-ctx.Done():
				return err
			}
		}
		if err := errors.Join(removeIfThere(at), removeIfThere(hooks.OriginFile(at))); err != nil {
			return err
		}
		_, err = c.Destroy(ctx, api.DestroyRequest{Access: a.access(), Ref: name})
		return err
	})
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// gitWorktree makes a worktree as the tool does without a hook: with git, where snapfs could not make one because of
// cause.
func gitWorktree(ctx context.Context, in hookInput, cause error) (string, error) {
	project, err := in.projectDir()
	name := plainWord(cmp.Or(in.Name, in.WorktreeName))
	if err != nil || name == "" {
		return "", cause
	}
	path, err := hooks.GitWorktree(ctx, project, name)
	if err != nil {
		return "", errors.Join(cause, err)
	}
	return path, nil
}
