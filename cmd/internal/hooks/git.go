package hooks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"snapfs/sandbox/api"
)

// gitHooks are the hooks of git (githooks(5)) after which there is a turn. None of them can make git fail.
var gitHooks = []string{"post-commit", "post-checkout", "post-merge", "post-rewrite"}

const (
	// gitHookEmpty is a hook of ours that does nothing.
	gitHookEmpty = "#!/bin/sh\n# made by 'snapfs hooks install git'\n"
	// gitHookMoved is behind the name of a hook that was there: ours runs it.
	gitHookMoved = ".before-snapfs"
	gitHookChain = "[ ! -x \"$0" + gitHookMoved + "\" ] || exec \"$0" + gitHookMoved + "\" \"$@\"\n"
)

// git changes the hooks of the repository that the directory is in.
func (c Change) git(ctx context.Context) ([]string, error) {
	changed := []string{}
	hooks, err := gitHooksDir(ctx, c.Dir)
	if err != nil {
		return changed, err
	}
	if c.Program != "" {
		if err := os.MkdirAll(hooks, 0o755); err != nil {
			return changed, err
		}
	} else if _, err := os.Lstat(hooks); errors.Is(err, fs.ErrNotExist) {
		return changed, nil
	}
	for _, name := range gitHooks {
		f := hookFile{dir: hooks, name: name, empty: gitHookEmpty, mode: 0o755}
		if c.Program != "" && f.isUnused() {
			c.Note("%q is not executable, so git does not run it: it stays as it is, and there is no turn then", f.path())
			continue
		}
		ok, err := f.change(c.Program)
		if err != nil {
			return changed, err
		}
		if ok {
			changed = append(changed, f.path())
		}
	}
	return changed, nil
}

// gitHooksDir is where the repository of a directory has its hooks. It may be missing.
func gitHooksDir(ctx context.Context, dir string) (string, error) {
	out, err := runGit(ctx, dir, "rev-parse", "--path-format=absolute", "--git-path", "hooks", "--git-common-dir")
	if err != nil {
		return "", fmt.Errorf("%w: no repository of git at %q: %w", api.ErrNotFound, dir, err)
	}
	paths := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if top, err := runGit(ctx, dir, "rev-parse", "--show-toplevel"); err == nil { // there are repositories without files
		paths = append(paths, strings.TrimSuffix(top, "\n"))
	}
	for i := range paths {
		if paths[i], err = realPath(paths[i]); err != nil {
			return "", err
		}
	}
	hooks := paths[0]
	if !slices.ContainsFunc(paths[1:], func(own string) bool { return below(hooks, own) }) {
		return "", conflict("git has its hooks in %q (core.hooksPath), which other repositories may share: "+
			"call 'snapfs turn .' there yourself", hooks)
	}
	if strings.HasSuffix(hooks, "/.husky/_") {
		return "", conflict("the hooks in %q are husky's, which makes them anew: call 'snapfs turn .' in "+
			"those of %q", hooks, filepath.Dir(hooks))
	}
	return hooks, nil
}

// realPath is a path without symbolic links; what it names may be missing.
func realPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
		return real, err
	}
	dir, err := realPath(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// change puts a program into a hook of git, or takes it out. A hook that was there is moved aside, and run by ours with
// what it is given.
func (f hookFile) change(program string) (bool, error) {
	moved := f.path() + gitHookMoved
	was, errWas := os.Lstat(moved)
	info, err := os.Lstat(f.path())
	chained, missing := errWas == nil, errors.Is(err, fs.ErrNotExist)
	switch {
	case err != nil && !missing:
		return false, err
	case chained && !missing && os.SameFile(was, info): // an install was interrupted
		if err := os.Remove(moved); err != nil {
			return false, err
		}
		chained = false
	case chained && program == "":
		return true, f.unchain(moved)
	}
	ours := missing || f.isOurs(info)
	edit := func(text string) (string, error) { return editGitHook(text, program), nil }
	switch {
	case program == "" && (missing || !ours):
		return false, nil
	case ours:
		if chained {
			f.empty += gitHookChain
		}
		return f.rewrite(edit)
	case chained:
		return false, f.changedSince(moved)
	}
	if err := os.Link(f.path(), moved); err != nil { // a symbolic link is linked itself
		return false, err
	}
	next := hookFile{dir: f.dir, name: f.name + gitHookMoved + "-next", empty: gitHookEmpty + gitHookChain, mode: 0o755}
	if _, err := next.rewrite(edit); err != nil {
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
		return f.changedSince(moved)
	}
	return os.Rename(moved, f.path())
}

func (f hookFile) changedSince(moved string) error {
	return conflict("%q was changed since it was installed: it runs %q", f.path(), moved)
}

// isOurs reports whether a hook was made by us. Others may have added to it.
func (f hookFile) isOurs(info fs.FileInfo) bool {
	if !info.Mode().IsRegular() || info.Size() > maxHookFile {
		return false
	}
	text, err := os.ReadFile(f.path())
	return err == nil && strings.HasPrefix(editGitHook(string(text), ""), gitHookEmpty)
}

// isUnused reports whether a hook is there that git does not run.
func (f hookFile) isUnused() bool {
	if _, err := os.Lstat(f.path()); err != nil {
		return false
	}
	info, err := os.Stat(f.path())
	return err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0
}

// editGitHook puts a command of a program into a hook of ours, as its second line; program "" takes it out.
func editGitHook(text, program string) string {
	var lines []string
	for l := range strings.Lines(text) {
		if !isHookLine("git", strings.TrimSuffix(l, "\n")) {
			lines = append(lines, l)
		}
	}
	if program != "" && len(lines) > 0 {
		lines[0] += hookLine(program, "git", Turn) + "\n"
	}
	return strings.Join(lines, "")
}
