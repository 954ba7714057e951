package layers

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// What is mounted in a directory that is imported is left out, and never asked: its server may not answer, and whoever
// asked it would wait for ever, with the locks that are held then. So what is opened there must lie on the mount of the
// directory, and what is looked at is asked for no more than the kernel knows until that is certain.

// errCovered says that a mount has come over something that was seen.
var errCovered = fmt.Errorf("something is mounted over it: %w", unix.EIO)

// openat opens a name in a directory of the layer. errCovered: it lies on another mount than it must.
func (s *dirStore) openat(dirfd int, name string, flags int) (int, error) {
	if !s.apart {
		return openat(dirfd, name, flags, 0)
	}
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := opening(func() (int, error) { return unix.Openat2(dirfd, name, &how) })
	switch {
	case errors.Is(err, unix.EXDEV):
		return -1, errCovered
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM) && flags&unix.O_NOATIME == 0: // as containers say of unknown calls
		return openat(dirfd, name, flags, 0)
	}
	return fd, err
}

// statMask is what is asked of what is imported.
const statMask = unix.STATX_BASIC_STATS | unix.STATX_BTIME | unix.STATX_MNT_ID

// stat looks at a name in a directory of the tree. What is mounted there is apart: sx is what the kernel knows of it.
func (t *tree) stat(p location, sx *unix.Statx_t) (apart bool, err error) {
	const how = unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT
	err = statx(p.dirfd, p.name, how|unix.AT_STATX_DONT_SYNC, statMask, sx)
	if err != nil {
		// To others than its user, the kernel says of what FUSE shows no more than where it is mounted.
		var id unix.Statx_t
		if statx(p.dirfd, p.name, how|unix.AT_STATX_DONT_SYNC, 0, &id) != nil || mountOf(&id) == t.mount {
			return false, err
		}
		return true, t.statCovering(p, sx)
	}
	if mountOf(sx) != t.mount {
		return true, nil
	}
	if t.local {
		return false, nil
	}
	err = statx(p.dirfd, p.name, how, statMask, sx)
	return err == nil && mountOf(sx) != t.mount, err
}

// statCovering describes a mount that tells nothing: as its parent directory's owner would have made what it covers.
func (t *tree) statCovering(p location, sx *unix.Statx_t) error {
	if err := statx(p.dirfd, "", unix.AT_EMPTY_PATH, statMask, sx); err != nil {
		return err
	}
	sx.Mnt_id, sx.Ino, sx.Size, sx.Blocks = math.MaxUint64, 0, 0, 0 // no mount has this id
	sx.Mask |= unix.STATX_MNT_ID
	fd, err := openat(p.dirfd, p.name, unix.O_PATH|unix.O_DIRECTORY, 0) // which asks nobody
	if err == nil {
		sx.Mode, sx.Nlink = unix.S_IFDIR|0o755, 2
		return unix.Close(fd)
	}
	sx.Mode, sx.Nlink = unix.S_IFREG|0o644, 1
	return nil
}

// within calls fn with the location of what was looked at, which lies on the mount of the tree and stays the same.
func (t *tree) within(p location, fn func(p location) error) error {
	fd, err := t.store.openat(p.dirfd, p.name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return fn(location{dirfd: fd, foreign: p.foreign})
}
