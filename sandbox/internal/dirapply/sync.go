package dirapply

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// What was made is on the disk before it is put to its place. syncfs(2) would also write all that others have dirty there.
// On ext4 and XFS the data of files can be written one by one, and the log of the file system has all changes of metadata
// in their order: an fsync of what was changed last makes those before it durable.

// mostUnsynced is how many files stay open until they are written.
const mostUnsynced = 512

// unsynced are files whose data is being written out.
type unsynced struct {
	files []*os.File
	all   bool // the whole file system is to be synced
}

// ordered reports whether the root's file system has a log of that kind.
func (r *Root) ordered() bool {
	return r.fs == unix.EXT4_SUPER_MAGIC || r.fs == unix.XFS_SUPER_MAGIC
}

// add begins to write a file, and takes it over.
func (u *unsynced) add(f *os.File) error {
	if !u.all && len(u.files) == mostUnsynced {
		if err := u.wait(); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if !u.all {
		u.all = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) != nil
	}
	if u.all {
		return f.Close()
	}
	u.files = append(u.files, f)
	return nil
}

// wait waits until all are written, and closes them.
func (u *unsynced) wait() error {
	const written = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	var err error
	for _, f := range u.files {
		err = errors.Join(err, unix.SyncFileRange(int(f.Fd()), 0, 0, written), f.Close())
	}
	u.files = nil
	return err
}

// sync makes durable what was done until now, last of all a change of a directory.
func (x *runner) sync(dir int) error {
	if err := x.unsynced.wait(); err != nil {
		return err
	}
	if x.unsynced.all {
		return unix.Syncfs(dir)
	}
	return unix.Fsync(dir)
}
