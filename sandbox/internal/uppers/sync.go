package uppers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/internal/lockorder"
)

// syncfs(2) writes all that is dirty on a file system, gigabytes of neighbours included. What a snapshot needs is the
// data of the files of one upper, and all metadata until now. On ext4 and XFS both can be had without syncfs: file by
// file, sync_file_range(2) writes data and waits until it is written, and the file system's log has all changes of
// metadata in their order, so that an fsync of what was changed last makes those before it durable, and has the disk
// write its cache. Before Linux 5.2 sync_file_range(2) passed over what was being written out already.

// How much of an upper is looked at. If there is more, the whole file system is synced instead.
const (
	mostSynced = 1024
	mostListed = 256 << 10 // bytes of a directory
)

// unsynced notes uppers whose data may not be durable: snapshots that are being taken, or were taken without a sync.
type unsynced struct {
	mu     lockorder.Mutex[lockorder.UnsyncedUppers]
	known  bool            // everything from before the process is durable; guarded by mu
	uppers map[uint64]bool // of this process; guarded by mu
}

// Leave notes that an upper becomes a layer whose data may not be durable.
func (s *Set) Leave(n uint64) {
	s.unsynced.mu.Lock()
	defer s.unsynced.mu.Unlock()
	s.unsynced.uppers[n] = true
}

// forget notes that an upper is gone.
func (s *Set) forget(n uint64) {
	s.unsynced.mu.Lock()
	defer s.unsynced.mu.Unlock()
	delete(s.unsynced.uppers, n)
}

// Flush begins to write the data of an upper, and makes durable that there are the directories of uppers that were made
// until now.
func (s *Set) Flush(n uint64) error {
	if !s.ordered {
		return s.SyncAll()
	}
	done, err := s.eachFile(n, unix.SYNC_FILE_RANGE_WRITE)
	if err == nil && !done {
		return s.SyncAll()
	}
	return errors.Join(err, s.syncMetadata())
}

// SyncUpper makes durable all that was written to an upper, for which Leave was called, and to those below it, which are
// sealed.
func (s *Set) SyncUpper(n uint64, below []uint64) error {
	if !s.ordered || s.isUnsynced(below) {
		return s.SyncAll()
	}
	const written = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	done, err := s.eachFile(n, written)
	if err == nil && !done {
		return s.SyncAll()
	}
	if err = errors.Join(err, s.syncMetadata()); err != nil {
		return fmt.Errorf("syncing upper %d: %w", n, err)
	}
	s.unsynced.mu.Lock()
	defer s.unsynced.mu.Unlock()
	delete(s.unsynced.uppers, n)
	return nil
}

// SyncSealed makes durable what lies in uppers that are sealed.
func (s *Set) SyncSealed(below []uint64) error {
	if !s.isUnsynced(below) {
		return nil
	}
	return s.SyncAll()
}

// isUnsynced reports whether some of the uppers may not be durable.
func (s *Set) isUnsynced(below []uint64) bool {
	s.unsynced.mu.Lock()
	defer s.unsynced.mu.Unlock()
	return !s.unsynced.known || slices.ContainsFunc(below, func(n uint64) bool { return s.unsynced.uppers[n] })
}

// SyncAll makes everything on the file system of the home durable, what is written to uppers included.
func (s *Set) SyncAll() error {
	s.unsynced.mu.Lock()
	var before []uint64
	for n := range s.unsynced.uppers {
		before = append(before, n)
	}
	s.unsynced.mu.Unlock()
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return errors.Join(fmt.Errorf("syncfs %s: %w", s.dir, err), d.Close())
	}
	s.points.At("file system synced")
	s.unsynced.mu.Lock()
	defer s.unsynced.mu.Unlock()
	s.unsynced.known = true
	for _, n := range before {
		delete(s.unsynced.uppers, n)
	}
	return d.Close()
}

// eachFile has sync_file_range(2) work on every file of an upper, and returns its error. Files that are gone meanwhile
// are passed over. If there are too many, or some cannot be looked at, it is not done.
func (s *Set) eachFile(n uint64, flags int) (done bool, err error) {
	errMany := errors.New("too many files")
	left := mostSynced
	walked := hosttree.WalkAt(context.Background(), s.Root(n), func(dirfd int, name string, st *unix.Stat_t) error {
		if left--; left < 0 || st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Size > mostListed {
			return errMany
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Blocks == 0 && st.Size == 0 {
			return nil
		}
		fd, opened := unix.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if errors.Is(opened, unix.ENOENT) {
			return nil
		}
		if opened != nil {
			return opened
		}
		err = errors.Join(err, unix.SyncFileRange(fd, 0, 0, flags), unix.Close(fd))
		return nil
	})
	return walked == nil, err
}

// syncMetadata makes all metadata durable, and data that has been written: a change that is the last, and is synced.
func (s *Set) syncMetadata() error {
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	err = unix.Futimes(int(d.Fd()), now())
	if err == nil {
		err = unix.Fsync(int(d.Fd()))
	}
	s.points.At("metadata synced")
	return errors.Join(err, d.Close())
}

// now is the time, for access and modification.
func now() []unix.Timeval {
	var tv unix.Timeval
	_ = unix.Gettimeofday(&tv) // cannot fail
	return []unix.Timeval{tv, tv}
}

// isOrdered reports whether files of a directory can be synced one by one: its file system has one log, in which all
// changes of metadata are in order, and the kernel writes all of a file.
func isOrdered(dir string) bool {
	var system unix.Utsname
	if err := unix.Uname(&system); err != nil || !writesRanges(unix.ByteSliceToString(system.Release[:])) {
		return false
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return false
	}
	major, minor := int(unix.Major(st.Dev)), int(unix.Minor(st.Dev))
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Major != major || m.Minor != minor, false
	})
	if err != nil || len(mounts) == 0 {
		return false
	}
	switch m := mounts[0]; m.FSType {
	case "ext4":
		return hasJournal(major, minor)
	case "xfs":
		return !slices.ContainsFunc(strings.Split(m.VFSOptions, ","), func(o string) bool {
			return strings.HasPrefix(o, "rtdev=") // data of files lies on a disk of its own
		})
	}
	return false
}

// writesRanges reports whether sync_file_range(2) of a release of Linux writes and awaits all that is dirty, as since 5.2.
func writesRanges(release string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return n == 2 && (major > 5 || major == 5 && minor >= 2)
}

// hasJournal reports whether an ext4 file system has a journal.
func hasJournal(major, minor int) bool {
	dev, err := os.Readlink(filepath.Join("/sys/dev/block", strconv.Itoa(major)+":"+strconv.Itoa(minor)))
	if err != nil {
		return false
	}
	_, err = os.Stat(filepath.Join("/sys/fs/ext4", filepath.Base(dev), "journal_task"))
	return err == nil
}
