package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/internal/treefilter"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/extract"
	"snapfs/sandbox/internal/part"
	"snapfs/sandbox/internal/peer"
)

// Extract writes the tree of a snapshot into a directory, without a mount: what lstat, readlink, listxattr, read and
// SEEK_HOLE show of it, but for inode numbers and the times of access, change and birth. The call writes with the
// rights of this process or of the user for whom it is; what these or the file system do not allow, it counts as skipped. A call that fails or is
// cancelled leaves a part of the tree, with which the next one continues. The directory is then and meanwhile closed to
// other users. A directory that has the whole tree, by types, sizes, times and attributes, is left as it is.
func (h *Home) Extract(ctx context.Context, r ExtractRequest) (ExtractResult, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return ExtractResult{}, err
	}
	defer end()
	filter, err := filterOf(r.Part)
	if err != nil {
		return ExtractResult{}, err
	}
	from, below, err := h.extractSubject(ctx, r)
	if err != nil {
		return ExtractResult{}, err
	}
	session, err := r.SessionID()
	if err != nil {
		return ExtractResult{}, err
	}
	var path string
	err = asUser(ctx, func() (err error) {
		path, err = h.extractTarget(r.Path)
		return err
	})
	if err != nil {
		return ExtractResult{}, err
	}
	if err := h.waitImported(ctx, from.top(), r.Progress); err != nil {
		return ExtractResult{}, err
	}
	leave, err := h.working.exports.Enter(ctx, session, r.Progress)
	if err != nil {
		return ExtractResult{}, err
	}
	defer leave()
	id := ""
	if s := from.snapshot; s != nil {
		if from.snapshot, err = h.still(s); err != nil {
			return ExtractResult{}, err
		}
		id = s.ID
	}
	start := time.Now()
	tree, err := h.openTree(ctx, from.workspace, from.snapshot, "")
	if err != nil {
		return ExtractResult{}, err
	}
	defer tree.close()
	if err := tree.has(ctx, r.Part); err != nil {
		return ExtractResult{}, classify(err)
	}
	name := id + partName(r.Part)
	if r.Tree != "" {
		if below, err = tree.directory(below); err != nil {
			return ExtractResult{}, err
		}
		if name += fmt.Sprintf(" %q", "/"+below); from.workspace != nil {
			name = from.workspace.ID + name
		}
	}
	progress, counted := r.Progress, func() {}
	if below == "" {
		progress, counted = total(ctx, tree.lowers, r.Part, r.Progress)
	}
	defer counted()
	got, err := h.extractTree(ctx, tree, below, filter, path, name, extract.Options{
		NoSync: r.NoSync, Progress: counter(progress, "restore"), Points: h.points,
	})
	if err != nil {
		return ExtractResult{}, extractError(err)
	}
	res := ExtractResult{
		Path: path, Snapshot: id, Directories: got.Directories, Files: got.Files, Others: got.Others,
		Links: got.Links, Bytes: got.Bytes, Kept: got.Kept, Seconds: time.Since(start).Seconds(), Skipped: got.Skipped,
	}
	for _, skip := range got.Skips {
		res.Skips = append(res.Skips, Skip{
			Path: skip.Path, RawPath: api.RawPath(skip.Path), What: skip.What, Error: skip.Err.Error(),
		})
	}
	return res, nil
}

// extractSubject finds what is to be written: a snapshot, or with Tree a path of a snapshot or a workspace.
func (h *Home) extractSubject(ctx context.Context, r ExtractRequest) (s subject, path string, err error) {
	switch {
	case r.Tree == "":
		s.snapshot, err = h.useSnapshot(ctx, r.Access, r.Snapshot, "extract")
	case r.Snapshot != "":
		err = fmt.Errorf("%w: a snapshot and a tree", ErrInvalid)
	case len(r.Paths) > 0:
		err = fmt.Errorf("%w: paths are for whole snapshots", ErrInvalid)
	default:
		s, path, err = h.usePlace(ctx, r.Access, r.Tree, "", "extract")
	}
	if err == nil && s.snapshot != nil {
		err = h.restorable(s.snapshot)
	}
	return s, path, err
}

// directory finds a directory by a path, which may have symbolic links, and gives its path without them.
func (t *tree) directory(path string) (at string, err error) {
	tree, done, err := layers.OpenTree(t.lowers)
	if err != nil {
		return "", classify(err)
	}
	defer done()
	f, at, err := lookUp(tree, path)
	if err == nil && f.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = fmt.Errorf("%w: %s is no directory", ErrInvalid, api.Quoted("/"+at))
	}
	return at, classify(err)
}

// extractTree writes what a filter takes of a directory of a tree. Name is that of the whole, by which an interrupted call is continued.
func (h *Home) extractTree(
	ctx context.Context, tree *tree, below string, filter *treefilter.Filter, path, name string, o extract.Options,
) (_ extract.Result, err error) {
	src, err := layers.Merged(tree.lowers)
	if err != nil {
		return extract.Result{}, err
	}
	if c, ok := src.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	threads := userThreads(ctx)
	defer threads.Close()
	o.Do = doBy(threads)
	var target *extract.Target
	err = asUser(ctx, func() (err error) {
		target, err = extract.Open(path, name)
		return err
	})
	if err != nil {
		return extract.Result{}, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	r, err := target.Extract(ctx, part.Of(part.Below(src, below), filter), o)
	return r, userError(peer.From(ctx), err)
}

// extractTarget checks where a tree is to go.
func (h *Home) extractTarget(path string) (string, error) {
	at, err := h.outside(path)
	switch {
	case err != nil:
	case at.missing == 0 && !at.info.IsDir():
		err = fmt.Errorf("%w: %s is not a directory", ErrInvalid, path)
	case at.holdsHome:
		err = fmt.Errorf("%w: %s contains the home %s: choose another directory", ErrInvalid, path, h.dir)
	}
	return at.path, err
}

// extractError puts an error into a class and says how to go on.
func extractError(err error) error {
	switch {
	case errors.Is(err, extract.ErrNotEmpty):
		return fmt.Errorf("%w: %w: choose an empty directory, or one that does not exist", ErrConflict, err)
	case errors.Is(err, extract.ErrOther):
		return fmt.Errorf("%w: %w: repeat the call for that one, or choose another directory", ErrConflict, err)
	case errors.Is(err, extract.ErrBusy):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fmt.Errorf("%w: make room there and repeat the call: it continues", err)
	}
	return classify(err)
}
