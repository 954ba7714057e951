package gitapply

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

	"golang.org/x/sys/unix"

	"snapfs/cmd/internal/gitcommit"
	"snapfs/sandbox/api"
)

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
	for part := range api.PathParts(missed) {
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
			m.leave(sub, "submodule")
		case ch.newDir:
		case !ch.there && modes[at] != "":
			remove = append(remove, at)
		case ch.special && modes[at] != "":
			remove = append(remove, at)
			m.leave(at, "special file")
		case m.specials[ch.Path]:
			m.leave(at, "special file")
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
			return nil, nil, fmt.Errorf("%w: %s: git takes no file with the name %s: rename it, or have git ignore it",
				api.ErrInvalid, api.Quoted(p), api.Quoted(name))
		}
		add = append(add, m.at(p))
	}
	return remove, add, nil
}

// at is where a path of FROM is in the repository.
func (m *commit) at(p string) string { return path.Join(m.r.Prefix, p) }

// changed is something that has changed, by its path in FROM.
type changed struct {
	Path    string
	there   bool // now
	special bool // git cannot know it
	newDir  bool // a directory that was not there
}

// changes lists what has changed.
func (m *commit) changes(ctx context.Context) (all []changed, err error) {
	seen := map[string]bool{}
	note := func(p changed) {
		if !seen[p.Path] {
			seen[p.Path] = true
			all = append(all, p)
		}
	}
	r := api.DiffRequest{Access: m.r.Access, A: m.base, B: m.tree, Part: api.Part{Exclude: []string{"/.git"}}}
	err = m.api.Diff(ctx, r, func(ch api.Change) error {
		p := changed{Path: ch.Path, there: ch.Kind != "D"}
		switch ch.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFLNK:
		case unix.S_IFDIR:
			if ch.Kind != "D" && ch.OldMode&unix.S_IFMT != unix.S_IFDIR || ch.Kind == "R" {
				all = append(all, changed{Path: ch.Path, newDir: true})
			}
			return nil
		default:
			p.special = p.there
		}
		if ch.OldPath != "" {
			note(changed{Path: ch.OldPath})
		}
		note(p)
		return nil
	})
	return all, err
}

// fetch puts the files of a part of FROM that have changed into the work directory.
func (m *commit) fetch(ctx context.Context, files *gitcommit.Files, part api.Part, now map[string]bool) error {
	r := api.DiffRequest{Access: m.r.Access, A: m.base, B: m.tree, Part: part, Contents: files}
	return m.api.Diff(ctx, r, func(ch api.Change) error {
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
	ctx context.Context, unknown []string, all []changed, above map[string]bool,
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
		err := m.api.Files(ctx, m.file(m.tree, dir+"/.git"), func(api.File) error { return nil })
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
			m.leave(m.at(inside), "repository")
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
		p, err := filepath.Rel(cmp.Or(m.r.Prefix, "."), at)
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
