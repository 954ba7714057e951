package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/internal/holder"
	"snapfs/sandbox/api"
)

// Keeper keeps data and copies of descriptors by name, in another process: they outlive this one, and its successor finds
// them. Implementations are safe for concurrent use, and bound how long they take.
type Keeper interface {
	// Keep replaces what is kept by a name. When it returns, it is kept. The files must stay open until the name is
	// forgotten or used again.
	Keep(name string, data []byte, files ...*os.File) error
	// Forget ends the keeping of a name, if it is kept.
	Forget(name string) error
	// Get gives what is kept by a name; no files if nothing is. The files are the caller's.
	Get(name string) (Kept, error)
	// Kept gives everything that is kept, by name. The files are the caller's.
	Kept() ([]Kept, error)
}

// Kept is what a Keeper keeps by a name.
type Kept = holder.Kept

// Death is the end of a process that had a home and did not take leave.
type Death = holder.Death

// keptLockName is the name by which the locks of a home are kept: those of its file and its directory, and the files of
// the store's lock.
const keptLockName = holder.HomePrefix + "lock"

// takeKept gives the descriptors of the home's locks that a keeper has, nil if it has none.
func takeKept(k Keeper) ([]*os.File, error) {
	if k == nil {
		return nil, nil
	}
	kept, err := k.Get(keptLockName)
	if err != nil {
		return nil, fmt.Errorf("%w: what the daemon before had: %w", ErrUnavailable, err)
	}
	return kept.Files, nil
}

func closeKept(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// keptLock is the lock of the home in dir that descriptors have; nil if they have none, or that of another directory.
func keptLock(dir string, files []*os.File) (*homeLock, error) {
	if len(files) < 2 || !sameFile(files[0], filepath.Join(dir, api.LockName)) || !sameFile(files[1], dir) {
		closeKept(files) // the lock is what this process had, or another one has
		return nil, nil
	}
	l := &homeLock{file: files[0], dir: files[1], store: files[2:]}
	// The lock is that of the open file: whoever has a descriptor of it has the lock.
	err := unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = unix.Flock(int(l.dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EBADF) { // as in takeLock
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(unusable(dir, err), l.Close())
	}
	return l, nil
}

// sameFile reports whether a file is open that is at a path.
func sameFile(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// keep has the keeper keep the lock for the next process. Without that, it is taken anew.
func (l *homeLock) keep(h *Home) {
	if h.keeper == nil {
		return
	}
	if err := h.keeper.Keep(keptLockName, nil, append([]*os.File{l.file, l.dir}, l.store...)...); err != nil {
		h.log.Warn("nothing keeps the mounts should this process die", "error", err)
	}
}

// unlock gives the home up, or its lock to the process that goes on with the mounts.
func (h *Home) unlock() error {
	if h.keeper != nil && !h.keepMounts.Load() {
		if err := h.keeper.Forget(keptLockName); err != nil {
			h.log.Warn("a descriptor of the lock of the home is kept", "error", err)
		}
		// It is also unlocked for those who still have a descriptor.
		for _, f := range []*os.File{h.lock.file, h.lock.dir} {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil && !errors.Is(err, unix.EBADF) {
				h.log.Warn("unlocking the home", "error", err)
			}
		}
	}
	return h.lock.Close()
}
