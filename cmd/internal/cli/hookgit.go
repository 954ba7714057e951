package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"snapfs/sandbox/api"
)

// gitHooks are the hooks of git (githooks(5)) after which there is a turn. None of them can make git fail.
var gitHooks = []string{"post-commit", "post-checkout", "post-merge", "post-rewrite"}

const (
	// gitHookEmpty is a hook of ours that does nothing.
	gitHookEmpty = "#!/bin/sh\n# made by 'snapfs hooks install git'\n"
	// gitHookMoved is behind the name of a hook that is no shell script, or a link: ours runs it.
	gitHookMoved = ".before-snapfs"
	gitHookChain = "[ ! -x \"$0" + gitHookMoved + "\" ] || exec \"$0" + gitHookMoved + "\" \"$@\"\n"
)

// changeGitHooks has git run a program; "" takes the hooks away. It gives the files it has changed.
func changeGitHooks(dir, program string) ([]string, error) {
	changed := []string{}
	hooks, err := gitHooksDir(dir)
	if err != nil {
		return changed, err
	}
	for _, name := range gitHooks {
		f := hookFile{dir: hooks, name: name, empty: gitHookEmpty, mode: 0o755}
		ok, err := f.change(program)
		if err != nil {
			return changed, err
		}
		if ok {
			changed = append(changed, f.path())
		}
	}
	return changed, nil
}

// gitHooksDir is where the repository of a directory has its hooks.
func gitHooksDir(dir string) (string, error) {
	out, err := git(context.Background(), dir, "rev-parse", "--path-format=absolute", "--git-path", "hooks", "--git-common-dir")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if err != nil || len(lines) != 2 {
		return "", failure(api.ErrNotFound, "not found: %s is in no repository of git", quote(dir))
	}
	hooks, common := lines[0], lines[1]
	if err := os.MkdirAll(hooks, 0o755); err != nil {
		return "", err
	}
	if hooks, err = filepath.EvalSymlinks(hooks); err != nil {
		return "", err
	}
	if common, err = filepath.EvalSymlinks(common); err != nil {
		return "", err
	}
	if !within(hooks, common) && !within(hooks, dir) {
		return "", failure(api.ErrConflict, "conflict: git has its hooks in %s (core.hooksPath), which other repositories may share: "+
			"call 'snapfs turn .' there yourself", quote(hooks))
	}
	return hooks, nil
}

// change puts a program into a hook of git, or takes it out. A hook that is no shell script is moved aside, and run by
// ours.
func (f hookFile) change(program string) (bool, error) {
	moved := f.path() + gitHookMoved
	was, errWas := os.Lstat(moved)
	info, err := os.Lstat(f.path())
	chained := errWas == nil
	switch {
	case chained && err == nil && os.SameFile(was, info): // an install was interrupted
		if err := os.Remove(moved); err != nil {
			return false, err
		}
		chained = false
	case chained && program == "":
		return true, f.unchain(moved)
	}
	if program == "" && err == nil && !info.Mode().IsRegular() {
		return false, nil // nothing of ours
	}
	if program == "" || chained || f.isShell() {
		return f.rewrite(func(text string) (string, error) { return editGitHook(text, program), nil })
	}
	if err := os.Link(f.path(), moved); err != nil { // a symbolic link is linked itself
		return false, err
	}
	next := hookFile{dir: f.dir, name: f.name + gitHookMoved + "-next", mode: 0o755}
	if _, err := next.rewrite(func(string) (string, error) { return editGitHook(gitHookEmpty+gitHookChain, program), nil }); err != nil {
		return false, errors.Join(err, os.Remove(moved))
	}
	return true, os.Rename(next.path(), f.path())
}

// unchain puts a hook that was moved aside back in its place, if ours is there.
func (f hookFile) unchain(moved string) error {
	text, err := os.ReadFile(f.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && editGitHook(string(text), "") != gitHookEmpty+gitHookChain {
		return failure(api.ErrConflict, "conflict: %s was changed since it was installed: it runs %s", quote(f.path()), quote(moved))
	}
	return os.Rename(moved, f.path())
}

// isShell reports whether a hook is a shell script in a file of its own, or missing.
func (f hookFile) isShell() bool {
	info, err := os.Lstat(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxHookFile {
		return false
	}
	text, err := os.ReadFile(f.path())
	first, _, ok := strings.Cut(string(text), "\n")
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	if err != nil || !ok || !strings.HasPrefix(first, "#!") || len(words) == 0 {
		return false
	}
	name := filepath.Base(words[0])
	if name == "env" && len(words) > 1 {
		name = words[1]
	}
	switch name {
	case "sh", "bash", "dash", "zsh", "ksh":
		return true
	}
	return false
}

// editGitHook puts a command of a program into a hook, as its second line; program "" takes it out.
func editGitHook(text, program string) string {
	var lines []string
	for l := range strings.Lines(text) {
		if !isHookLine("git", strings.TrimSuffix(l, "\n")) {
			lines = append(lines, l)
		}
	}
	if program != "" && len(lines) > 0 {
		lines[0] += hookLine(program, "git", hookTurn) + "\n"
	}
	return strings.Join(lines, "")
}
