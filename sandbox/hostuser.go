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
	"snapfs/sandbox/internal/catalog"
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

// mountFor gives the context and the options with which a workspace is mounted at a path. Where a user has mounted it
// last, it is mounted as that user again, whoever asks: what the path leads to is that user's to decide.
func mountFor(
	ctx context.Context, w *catalog.Workspace, mountpoint string, o MountOptions,
) (context.Context, MountOptions, error) {
	o = tracking(w, o)
	o.Engine = engineFor(w, o)
	u := peer.From(ctx)
	if m := w.Mount; u == nil && m != nil && m.By != nil && m.Mountpoint == mountpoint {
		u = m.By
		ctx = peer.With(ctx, u)
	}
	if u == nil {
		o.AllowOther = o.AllowOther && os.Geteuid() != 0 // what root mounts is
		return ctx, o, nil
	}
	if o.SUID || o.Dev {
		return ctx, o, fmt.Errorf("%w: what %s mounts is nosuid and nodev", ErrRefused, u)
	}
	o.NoSUID, o.NoDev = true, true
	return ctx, o, nil
}

// open opens the directory as the user whose rights it is used with, who must own it.
func (l *mountLocation) open() error {
	if l.by == nil {
		return nil
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	err := l.by.Do(func() (err error) {
		l.dir, err = os.OpenFile(l.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Fstat(int(l.dir.Fd()), &st), unix.Fstatfs(int(l.dir.Fd()), &fs))
	})
	if err != nil {
		return userError(l.by, pathError(l.path, err))
	}
	now, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", l.dir.Fd()))
	if err != nil {
		return err
	}
	switch {
	case now != l.path:
		return fmt.Errorf("%w: mountpoint %s was renamed meanwhile", ErrConflict, l.path)
	case !mountable(fs):
		return fmt.Errorf("%w: %s is on a file system (of type %#x) on which %s may not mount: choose a directory for files",
			ErrRefused, l.path, fs.Type, l.by)
	case st.Uid != l.by.UID:
		return fmt.Errorf("%w: %s belongs to uid %d, and %s may mount only on directories of its own",
			ErrRefused, l.path, st.Uid, l.by)
	}
	return nil
}

// openCgroup finds the control group that a call names. A user must be able to freeze it without snapfs.
func openCgroup(ctx context.Context, path string) (cgroup.Group, error) {
	var asking []int
	if pid := ProcessOf(ctx); pid > 0 {
		asking = append(asking, pid)
	}
	if peer.From(ctx) == nil {
		return cgroup.Open(path, asking...)
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
	return cgroup.Open(path, asking...)
}
