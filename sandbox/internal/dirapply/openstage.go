package dirapply

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Stage tells a stage from another directory that somebody has put in its place.
type Stage struct {
	Ino       uint64
	UID, Mode uint32
}

// stageMode are the permissions of a stage: nobody else gets at what is in it.
const stageMode = 0o700

// openStage makes the stage, or opens the one that another run has left. What has its name and was not made by a run is
// moved out of the way.
func (x *runner) openStage() error {
	name := stageStart + x.Name
	for {
		is, ours, err := x.tryStage(name)
		if err != nil {
			return err
		}
		if ours {
			x.Points.At("stage made")
			if x.Made == nil || is == x.Stage {
				return nil
			}
			return x.Made(is)
		}
		if x.stage >= 0 {
			_ = unix.Close(x.stage) // nothing is written
			x.stage = -1
		}
		if err := x.left(name, "is not what was made there"); err != nil {
			return err
		}
		root := int(x.r.dir.Fd())
		to, err := x.asideIn("", name[1:], func(in int, as string) error { return rename(root, name, in, as) })
		if err != nil {
			return described(name, err)
		}
		x.result.Left = append(x.result.Left, to)
	}
}

// tryStage makes or opens the stage, and reports whether what was opened was made by this run or the one before.
func (x *runner) tryStage(name string) (is Stage, ours bool, err error) {
	err = x.r.do(func() error {
		root := int(x.r.dir.Fd())
		err := unix.Mkdirat(root, name, stageMode)
		made := err == nil
		if errors.Is(err, unix.EEXIST) && (x.Resume || x.Back) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		x.stage, err = unix.Openat(root, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if missing(err) || errors.Is(err, unix.EACCES) {
			x.stage = -1
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(x.stage, &st); err != nil {
			return err
		}
		is = Stage{st.Ino, st.Uid, st.Mode & 0o777}
		if !made && (is == x.Stage || !x.r.numbered()) {
			ours = true
			return nil
		}
		names, err := namesIn(x.stage) // a run that ended at once has told nobody
		ours = len(names) == 0 && (!x.r.posix() || private(&st))
		return err
	})
	return is, ours, err
}

// namesIn lists an open directory.
func namesIn(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close() //nolint:errcheck // nothing is written
	return f.Readdirnames(-1)
}

// private reports whether something belongs to whom this thread works for, and to nobody else.
func private(st *unix.Stat_t) bool {
	uid, err := unix.SetfsuidRetUid(-1)
	return err == nil && int(st.Uid) == uid && st.Mode&0o777 == stageMode
}

// posix reports whether the root's file system is known to keep owners and permissions as they are set. Network file
// systems and those of other systems may give everything to somebody.
func (r *Root) posix() bool {
	return slices.Contains([]int64{
		unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC,
		unix.OVERLAYFS_SUPER_MAGIC,
	}, r.fs)
}

// numbered reports whether inode numbers stay on the root's file system while it is not used.
func (r *Root) numbered() bool {
	return !slices.Contains([]int64{
		unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC,
	}, r.fs)
}
