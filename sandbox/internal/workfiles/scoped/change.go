package scoped

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
)

// MakeDir makes a directory.
func (r *Root) MakeDir(q api.MakeDirRequest) (api.File, error) {
	mode := q.Mode
	if mode == 0 {
		mode = 0o755
	}
	if mode&^0o7777 != 0 {
		return api.File{}, fmt.Errorf("%w: mode %#o", api.ErrInvalid, q.Mode)
	}
	if err := valid(q.Path); err != nil {
		return api.File{}, err
	}
	if q.Parents {
		above, _ := split(q.Path)
		if err := r.makeAll(above, 0o755); err != nil {
			return api.File{}, err
		}
		fd, err := r.open(q.Path, unix.O_PATH|unix.O_DIRECTORY, 0)
		if err == nil {
			closing(fd)
			return r.Stat(api.WorkFileRequest{Path: q.Path})
		}
	}
	err := r.mkdir(q.Path, mode)
	if isThere := q.Parents && errors.Is(err, unix.EEXIST) && r.isDir(q.Path); err != nil && !isThere {
		return api.File{}, Fault(q.Path, err)
	}
	return r.Stat(api.WorkFileRequest{Path: q.Path})
}

// isDir reports whether a path leads to a directory.
func (r *Root) isDir(p string) bool {
	fd, err := r.open(p, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err == nil {
		closing(fd)
	}
	return err == nil
}

// Move renames.
func (r *Root) Move(q api.MoveFileRequest) error {
	from, name, err := r.parent(q.Path)
	if err != nil {
		return err
	}
	defer closing(from)
	to, toName, err := r.parent(q.To)
	if err != nil {
		return err
	}
	defer closing(to)
	flags := uint(0)
	if q.NoReplace {
		flags = unix.RENAME_NOREPLACE
	}
	err = unix.Renameat2(from, name, to, toName, flags)
	about := q.Path
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EISDIR) {
		about = q.To
	}
	if errors.Is(err, unix.ENOTDIR) { // both names are there: one is a directory, and the other is none
		return fmt.Errorf("%w: %s is a directory, and %s is none", api.ErrConflict, api.Quoted(q.Path), api.Quoted(q.To))
	}
	return Fault(about, err)
}

// Remove removes a file or a directory; cancelled or failed midway, a Recursive one leaves a part.
func (r *Root) Remove(ctx context.Context, q api.RemoveFileRequest) error {
	dir, name, err := r.parent(q.Path)
	if err != nil {
		return err
	}
	defer closing(dir)
	if !strings.HasSuffix(q.Path, "/") {
		err = unix.Unlinkat(dir, name, 0)
		if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
			return Fault(q.Path, err)
		}
	}
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTEMPTY) && q.Recursive {
		err = hosttree.RemoveMounted(ctx, dir, name)
	}
	return Fault(q.Path, err)
}
