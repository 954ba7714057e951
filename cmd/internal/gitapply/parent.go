package gitapply

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
)

// file is a request for a file of a snapshot or a workspace.
func (m *commit) file(ref, p string) api.FilesRequest {
	return api.FilesRequest{Access: m.r.Access, Ref: ref, Path: "/" + p}
}

// read reads a file of a snapshot or a workspace.
func (m *commit) read(ctx context.Context, ref, p string) (string, error) {
	var b strings.Builder
	_, err := m.api.ReadFile(ctx, m.file(ref, p), &b)
	return b.String(), err
}

// findParent finds the parent, and where in the repository the tree of FROM lies, which began with the directory where.
func (m *commit) findParent(ctx context.Context, where string) error {
	var dotGit uint32 // its type in the base; 0 if there is none
	err := m.api.Files(ctx, m.file(m.base, ""), func(f api.File) error {
		if f.Path == ".git" {
			dotGit = f.Mode & unix.S_IFMT
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := m.findPrefix(where, dotGit != 0); err != nil {
		return err
	}
	rev := m.r.Parent
	if rev == "" {
		if rev, err = m.checkedOut(ctx, dotGit); err != nil || rev == unborn {
			return err
		}
	}
	if rev == "" {
		m.res.Parent, err = m.git.Head(ctx)
		if err == nil {
			m.r.Note("the parent is HEAD of %s: what %s began with does not tell another", api.Quoted(m.r.Repository), m.r.From)
		}
		return err
	}
	m.res.Parent, err = m.git.Commit(ctx, rev)
	if errors.Is(err, api.ErrNotFound) && m.r.Parent == "" {
		return fmt.Errorf("%w: %s began with commit %s, which %s does not have: fetch it there, or name another "+
			"parent (--parent)", api.ErrNotFound, m.r.From, rev, api.Quoted(m.r.Repository))
	}
	return err
}

// findPrefix finds out where in the repository the tree of FROM lies.
func (m *commit) findPrefix(where string, whole bool) error {
	if m.r.Prefix != "" {
		if m.r.Prefix = filepath.Clean(m.r.Prefix); m.r.Prefix == "." {
			m.r.Prefix = ""
		}
		return nil
	}
	if whole {
		return nil
	}
	if where != "" && m.git.Top != "" {
		real, err := filepath.EvalSymlinks(where)
		if err != nil {
			real = where // it is not there any more, or not here
		}
		if rel, err := filepath.Rel(m.git.Top, real); err == nil && filepath.IsLocal(rel) {
			if m.r.Prefix = rel; rel == "." {
				m.r.Prefix = ""
			}
			return nil
		}
	}
	return fmt.Errorf("%w: %s began with no work tree of a repository, nor with a directory in that of %s: say with "+
		"--prefix where its files belong, . being the root", api.ErrInvalid, m.r.From, api.Quoted(m.r.Repository))
}

// unborn stands for a parent where there was no commit yet.
const unborn = "unborn"

// commitID is an id of a commit as git writes it.
var commitID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// checkedOut is what was checked out in the base: an id, or another name of a commit; unborn, or "" if the base does not
// tell.
func (m *commit) checkedOut(ctx context.Context, dotGit uint32) (string, error) {
	switch dotGit {
	case unix.S_IFREG:
		return m.linkedHead(ctx)
	case unix.S_IFDIR:
	default:
		return "", nil
	}
	const links = 5 // as git follows them
	for ref, n := "HEAD", 0; n <= links; n++ {
		text, err := m.read(ctx, m.base, path.Join(".git", ref))
		if err != nil && !errors.Is(err, api.ErrNotFound) && !errors.Is(err, api.ErrInvalid) {
			return "", err
		}
		text = strings.TrimSpace(text)
		if text == "" {
			return m.packedRef(ctx, ref)
		}
		if commitID.MatchString(text) {
			return text, nil
		}
		next, ok := strings.CutPrefix(text, "ref:")
		next = strings.TrimSpace(next)
		if !ok || !strings.HasPrefix(next, "refs/") || !filepath.IsLocal(next) || next == "refs/heads/.invalid" {
			return "", nil // refs are in another format
		}
		ref = next
	}
	return "", nil
}

// packedRef finds a ref that has no file.
func (m *commit) packedRef(ctx context.Context, ref string) (string, error) {
	text, err := m.read(ctx, m.base, ".git/packed-refs")
	if err != nil && !errors.Is(err, api.ErrNotFound) {
		return "", err
	}
	for line := range strings.Lines(text) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == ref && commitID.MatchString(id) {
			return id, nil
		}
	}
	return unborn, nil
}

// linkedHead is what is checked out in a linked work tree.
func (m *commit) linkedHead(ctx context.Context) (string, error) {
	text, err := m.read(ctx, m.base, ".git")
	if err != nil {
		return "", err
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir: ")
	name := ""
	if ok && filepath.IsAbs(dir) {
		if name, err = m.git.Worktree(ctx, dir); err != nil {
			return "", err
		}
	}
	if name == "" {
		return "", fmt.Errorf("%w: %s began with a work tree that is not one of %s: name the parent (--parent)",
			api.ErrInvalid, m.r.From, api.Quoted(m.r.Repository))
	}
	return name, nil
}

// refusedName is the part of a path that git takes for .git on some file system, and refuses everywhere; "" if there is
// none.
func refusedName(p string) string {
	for name := range strings.SplitSeq(p, "/") {
		plain := strings.ToLower(strings.TrimRight(name, " ."))
		if stream, _, found := strings.Cut(plain, ":"); found {
			plain = strings.TrimRight(stream, " .")
		}
		if plain == ".git" || plain == "git~1" {
			return name
		}
	}
	return ""
}
