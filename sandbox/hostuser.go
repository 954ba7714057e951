package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/cgroup"
	"snapfs/sandbox/internal/peer"
)

// A call may be made for a user of the host (package peer) who has no rights to the home. What such a call names on the
// host is looked at, opened, made and removed with that user's rights, by threads that have no others. So it does not
// matter what the user puts there meanwhile: nothing can be reached that the user could not reach without snapfs.

// asUser runs fn, which opens paths that a call names, with the rights of whom the call is for.
func asUser(ctx context.Context, fn func() error) error {
	u := peer.From(ctx)
	return userError(u, u.Do(fn))
}

// userError says of an error that it is about a user's rights; those of this process itself pass.
func userError(u *peer.User, err error) error {
	switch {
	case u == nil || err == nil:
		return err
	case errors.Is(err, peer.ErrRights):
		return fmt.Errorf("%w: %w: run it as root", ErrUnavailable, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: %s may not do that: %w", ErrRefused, u, err)
	}
	return err
}

// userThreads are threads for work on what a call names; nil for this process itself. Close them.
func userThreads(ctx context.Context) *peer.Threads {
	if u := peer.From(ctx); u != nil {
		return u.Threads()
	}
	return nil
}

// doBy is what runs work by threads; nil for those of this process.
func doBy(t *peer.Threads) func(func() error) error {
	if t == nil {
		return nil
	}
	return t.Do
}

// ownRoot gives the root of a new workspace's empty upper to the user for whom it is made.
func (h *Home) ownRoot(ctx context.Context, upper uint64) error {
	u := peer.From(ctx)
	if u == nil {
		return nil
	}
	path := h.uppers.Path(upper)
	if err := os.Lchown(path, int(u.UID), int(u.GID)); err != nil {
		return err
	}
	return hosttree.SyncDir(path)
}

// openCgroup finds the control group that a call names. A user must be able to freeze it without snapfs.
func openCgroup(ctx context.Context, path string) (cgroup.Group, error) {
	if peer.From(ctx) == nil {
		return cgroup.Open(path)
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%w: cgroup %s: the absolute path of its directory is needed", ErrInvalid, api.Quoted(path))
	}
	err := asUser(ctx, func() error {
		g, err := cgroup.Group(path).Writable()
		path = string(g)
		return err
	})
	if err != nil {
		return "", err
	}
	return cgroup.Open(path)
}
