package chunkstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// storeLock is the exclusive lock of a store, which the kernel drops with the process. It is on the file LOCK, which
// names the process, and on the directory itself: LOCK can be removed or replaced while the store is open.
type storeLock struct{ file, dir *os.File }

// lockStore takes the lock of the store in dir, and writes the process id to LOCK. It takes over what another process had
// of the lock.
func lockStore(dir string, had []*os.File) (_ *storeLock, err error) {
	l, err := openLock(dir, had)
	defer func() {
		if err != nil {
			_ = l.close() // nothing was written
		}
	}()
	if err != nil {
		return nil, err
	}
	f := l.file
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = unix.Flock(int(l.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EBADF) { // network file systems lock only what is open for writing
			err = nil
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		b, _ := io.ReadAll(io.LimitReader(f, 32)) // the process id is best effort
		pid, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return nil, &LockedError{Dir: dir, PID: pid}
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	// A full disk must not keep a store from being opened: the lock is held without the process id, too.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return l, nil
}

// openLock opens the files of the lock. Those that another process had are used if they are those of this store: the lock
// is that of the open file.
func openLock(dir string, had []*os.File) (*storeLock, error) {
	path := filepath.Join(dir, lockName)
	if len(had) == 2 && isAt(had[0], path) && isAt(had[1], dir) {
		return &storeLock{had[0], had[1]}, nil
	}
	for _, f := range had {
		_ = f.Close() // nothing was written
	}
	l := &storeLock{}
	var err error
	if l.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		l.dir, err = os.Open(dir)
	}
	return l, err
}

// isAt reports whether a file is open that is at a path.
func isAt(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// LockFiles are the files of the lock of the store. The lock is that of the open files: a process that has copies of the
// descriptors has it too, until Close, and may pass them to Options.Lock. They belong to the store.
func (s *Store) LockFiles() []*os.File { return []*os.File{s.lock.file, s.lock.dir} }

// release empties LOCK, so that it takes no block, and releases the lock. It does nothing to a nil lock.
func (l *storeLock) release() error {
	if l == nil {
		return nil
	}
	err := l.file.Truncate(0)
	for _, f := range []*os.File{l.file, l.dir} { // also for those who have copies
		if e := unix.Flock(int(f.Fd()), unix.LOCK_UN); e != nil && !errors.Is(e, unix.EBADF) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, l.close())
}

func (l *storeLock) close() error {
	err := error(nil)
	if l.file != nil {
		err = l.file.Close()
	}
	if l.dir != nil {
		err = errors.Join(err, l.dir.Close())
	}
	return err
}
