package sandbox

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/layers"
	"snapfs/sandbox/api"
)

// Files calls fn for what is in a directory of a snapshot or a workspace, sorted by name, or for a file itself. Of a
// workspace that is written to it shows each directory as it is when it is read. An error of fn ends it.
func (h *Home) Files(ctx context.Context, r FilesRequest, fn func(File) error) error {
	return h.look(ctx, r, "list files", func(ctx context.Context, t *layers.Tree, f *layers.TreeFile, at string) error {
		if f.Mode&unix.S_IFMT == unix.S_IFDIR {
			return listFiles(ctx, t, at, "", r.Recursive, fn)
		}
		return tellFile(f, path.Base(at), fn)
	})
}

// ReadFile writes what a regular file of a snapshot or a workspace holds. ErrInvalid for anything else.
func (h *Home) ReadFile(ctx context.Context, r FilesRequest, w io.Writer) (File, error) {
	var read File
	err := h.look(ctx, r, "read a file", func(ctx context.Context, _ *layers.Tree, f *layers.TreeFile, at string) error {
		if f.Mode&unix.S_IFMT != unix.S_IFREG {
			is := "is no regular file"
			if f.Mode&unix.S_IFMT == unix.S_IFDIR {
				is = "is a directory, no regular file"
			}
			return fmt.Errorf("%w: %s %s", ErrInvalid, api.Quoted("/"+at), is)
		}
		if err := tellFile(f, path.Base(at), func(f File) error { read = f; return nil }); err != nil {
			return err
		}
		return f.CopyTo(ctx, w)
	})
	return read, err
}

// look runs fn on what a request names.
func (h *Home) look(
	ctx context.Context, r FilesRequest, what string,
	fn func(ctx context.Context, t *layers.Tree, f *layers.TreeFile, at string) error,
) error {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	s, p, err := h.usePlace(ctx, r.Access, r.Ref, r.Path, what)
	if err != nil {
		return err
	}
	if s.snapshot != nil {
		if s.snapshot, err = h.still(s.snapshot); err != nil {
			return err
		}
	}
	return h.inTree(ctx, s, func(t *layers.Tree) error {
		f, at, err := lookUp(t, p)
		if err != nil {
			return err
		}
		return fn(ctx, t, f, at)
	})
}

// listFiles tells what is in the directory at dir, as being below prefix.
func listFiles(ctx context.Context, t *layers.Tree, dir, prefix string, recursive bool, fn func(File) error) error {
	names, err := t.List(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		at, shown := path.Join(dir, name), path.Join(prefix, name)
		if len(at) > layers.MaxPath {
			continue // no program can name it
		}
		f, err := t.Lstat(at)
		if f == nil && err == nil {
			continue // just removed
		}
		if err == nil {
			err = tellFile(f, shown, fn)
		}
		if err == nil && recursive && f.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = listFiles(ctx, t, at, shown, true, fn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tellFile describes a file.
func tellFile(f *layers.TreeFile, shown string, fn func(File) error) error {
	out := File{
		Path: shown, Mode: f.Mode, UID: f.UID, GID: f.GID, Links: f.Nlink, Size: int64(f.Size), Device: f.Rdev,
		Modified: time.Unix(f.Mtime.Sec, int64(f.Mtime.Nsec)).UTC(),
	}
	if f.Mode&unix.S_IFMT == unix.S_IFLNK {
		var err error
		if out.Target, err = f.Target(); err != nil {
			return err
		}
	}
	out.RawPath, out.RawTarget = api.RawPath(out.Path), api.RawPath(out.Target)
	return fn(out)
}
