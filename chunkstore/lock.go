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

// lockStore takes the lock of the store in dir, and writes the process id to LOCK.
func lockStore(dir string) (_ *storeLock, err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &storeLock{file: f}
	defer func() {
		if err != nil {
			_ = l.close() // nothing was written
		}
	}()
	if l.dir, err = os.Open(dir); err != nil {
		return nil, err
	}
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

// release empties LOCK, so that it takes no block, and releases the lock. It does nothing to a nil lock.
func (l *storeLock) release() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.file.Truncate(0), l.close())
}

func (l *storeLock) close() error {
	err := l.file.Close()
	if l.dir != nil {
		err = errors.Join(err, l.dir.Close())
	}
	return err
}
