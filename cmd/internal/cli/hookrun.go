package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"snapfs/cmd/internal/hooks"
	"snapfs/sandbox/api"
	"snapfs/sandbox/client"
)

const (
	// hookTime bounds a hook: the tool waits for it. A worktree may be a whole tree that is stored first.
	hookTime, worktreeTime = 8 * time.Second, 50 * time.Second
	// hookGrace is how long what was cancelled then may take to be undone.
	hookGrace = 2 * time.Second
	// maxHookInput bounds what a tool says, in bytes.
	maxHookInput = 16 << 20
	// maxHookLog is from which size on the log of hooks begins anew, in bytes.
	maxHookLog = 1 << 20
	// maxHookDirs bounds the directories that a tool works in, at a time.
	maxHookDirs = 16
)

// hookInput is what tools say of a step, as far as it matters here. Claude Code and Codex have cwd, hook_event_name and
// tool_name, Cursor workspace_roots. A worktree that is made has a name, or as documented a worktree_name; one that is
// removed has a path. Sources are in package hooks.
type hookInput struct {
	Event        string   `json:"hook_event_name"`
	Cwd          string   `json:"cwd"`
	Roots        []string `json:"workspace_roots"`
	Tool         string   `json:"tool_name"`
	Name         string   `json:"name"`
	WorktreeName string   `json:"worktree_name"`
	WorktreePath string   `json:"worktree_path"`
}

// hookCommand is what the hooks of 'snapfs hooks' run. It succeeds, but for a worktree that nobody can make.
func (a *app) hookCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "hook TOOL ACTION",
		Short:  "what the hooks of a tool run; see 'snapfs hooks'",
		Hidden: true,
		Args:   cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			a.quiet, a.json = true, false
			if len(args) != 2 || !slices.Contains(hooks.Names(), args[0]) {
				a.logHook(args, errors.New("arguments: TOOL ACTION"))
				return nil
			}
			tool, action := args[0], hooks.Action(args[1])
			if tool == "cursor" || tool == "codex" {
				_, _ = fmt.Fprintln(a.out, "{}") // an answer is expected, and says nothing
			}
			limit := hookTime
			if action != hooks.Turn {
				limit = worktreeTime
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			path := ""
			in, err := patiently(ctx, func() (hookInput, error) { return readHookInput(a.in, tool) })
			if err == nil {
				path, err = patiently(ctx, func() (string, error) { return a.hook(ctx, action, tool, in) })
			}
			if err != nil {
				a.logHook(args, err)
			}
			if action != hooks.WorktreeCreate {
				return nil
			}
			if err != nil {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), worktreeTime)
				defer cancel()
				if path, err = gitWorktree(ctx, in, err); err != nil {
					return err
				}
			}
			return line(path)(a.out)
		},
	}
}

// patiently waits for fn until ctx ends, and then for what was cancelled to be undone. An fn that hangs, in a file system
// or because the tool says nothing, ends with the process.
func patiently[T any](ctx context.Context, fn func() (T, error)) (T, error) {
	type done struct {
		got T
		err error
	}
	ended := make(chan done, 1)
	go func() {
		got, err := fn()
		ended <- done{got, err}
	}()
	select {
	case d := <-ended:
		return d.got, d.err
	case <-ctx.Done():
	}
	select {
	case d := <-ended:
		return d.got, d.err
	case <-time.After(hookGrace):
		var none T
		return none, context.Cause(ctx)
	}
}

// readHookInput reads what the tool says. It does not wait for more than that.
func readHookInput(r io.Reader, tool string) (hookInput, error) {
	var in hookInput
	if tool == "git" { // says nothing, and may have a terminal there
		return in, nil
	}
	if err := json.NewDecoder(io.LimitReader(r, maxHookInput)).Decode(&in); err != nil {
		return hookInput{}, fmt.Errorf("what %s said is not JSON: %w", tool, err)
	}
	return in, nil
}

func (a *app) hook(ctx context.Context, action hooks.Action, tool string, in hookInput) (string, error) {
	switch action {
	case hooks.Turn:
		return "", a.hookTurns(ctx, tool, in)
	case hooks.WorktreeCreate:
		return a.createWorktree(ctx, in)
	case hooks.WorktreeRemove:
		return "", a.removeWorktree(ctx, in)
	}
	return "", fmt.Errorf("no action %q", action)
}

// hookTurns makes a turn of each workspace in which the tool works. Other directories are passed over.
func (a *app) hookTurns(ctx context.Context, tool string, in hookInput) error {
	dirs := slices.Clone(in.Roots)
	if in.Cwd != "" {
		dirs = append(dirs, in.Cwd)
	}
	if len(dirs) == 0 {
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		dirs = append(dirs, here)
	}
	if len(dirs) > maxHookDirs {
		dirs = dirs[:maxHookDirs]
	}
	slices.Sort(dirs)
	var errs []error
	dirs = slices.DeleteFunc(slices.Compact(dirs), func(dir string) bool {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("directory %q is not absolute", dir))
			return true
		}
		return !mayBeWorkspace(dir)
	})
	if len(dirs) == 0 {
		return errors.Join(errs...)
	}
	message := hookMessage(tool, in)
	return errors.Join(append(errs, a.withClient(ctx, existingHome, func(c *client.Client) error {
		var errs []error
		for _, dir := range dirs {
			_, err := c.Turn(ctx, api.TurnRequest{Access: a.access(), Workspace: dir, Message: message})
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}))...)
}

// mayBeWorkspace tells, without asking a daemon, directories that are in no workspace. One whose daemon has gone may be.
func mayBeWorkspace(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return !errors.Is(err, unix.ENOENT)
	}
	return st.Type == unix.FUSE_SUPER_MAGIC || st.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// hookMessage says with a turn what it was made after.
func hookMessage(tool string, in hookInput) string {
	const most = 100
	for _, word := range []string{in.Event, in.Tool} {
		word = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
				return -1
			}
			return r
		}, word)
		if word != "" && len(word) < most {
			tool += " " + word
		}
	}
	return tool
}

// logHook notes what a hook could not do. Nobody can be told if that fails, too.
func (a *app) logHook(args []string, cause error) {
	path := filepath.Join(a.home, "hooks.log")
	flags := os.O_WRONLY | os.O_APPEND | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxHookLog {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return
	}
	text := cause.Error()
	_, _ = fmt.Fprintf(f, "%s %.200q: %q\n", time.Now().Format(time.RFC3339), args, text[:min(len(text), 2000)])
	_ = f.Close()
}

// projectDir is the directory of the project in which the tool works.
func (in hookInput) projectDir() (string, error) {
	dir := cmp.Or(os.Getenv("CLAUDE_PROJECT_DIR"), in.Cwd)
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("the directory of the project, %q, is not absolute", dir)
	}
	return filepath.EvalSymlinks(dir)
}
