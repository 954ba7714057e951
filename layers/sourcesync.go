package layers

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// mostCopies is how many copies are synced one by one. If there are more, all of the file system is.
const mostCopies = 1024

// sourceUnsynced is what may not be durable of what a source layer has seen, guarded by sourceStore.mu. Records of the
// journal are counted.
type sourceUnsynced struct {
	noted  uint64            // records
	synced uint64            // those of which all is durable
	whole  uint64            // the last for which all of the file system must be synced
	copies map[uint64]uint64 // by number: the record of a copy
}

// copiedLocked notes a copy whose record is the last.
func (u *sourceUnsynced) copiedLocked(number uint64) {
	if len(u.copies) >= mostCopies {
		u.copies, u.whole = nil, u.noted
		return
	}
	if u.copies == nil {
		u.copies = map[uint64]uint64{}
	}
	u.copies[number] = u.noted
}

// SyncSource makes durable what was seen until now of directories that are layers (OpenSource): a snapshot may depend on
// it.
func (o *Overlay) SyncSource() error {
	o.tree.RLock()
	var low []*Lower
	for _, l := range o.stack {
		if l.lower.source != nil {
			low = append(low, l.lower.acquire())
		}
	}
	o.tree.RUnlock()
	var err error
	for _, l := range low {
		err = errors.Join(err, l.source.sync(), l.Close())
	}
	return err
}

// sync makes durable what was seen. The caller holds no lock. Who calls it while another is at it does the same once
// more, for nothing is durable yet.
func (s *sourceStore) sync() error {
	s.mu.Lock()
	u := &s.unsynced
	noted, whole := u.noted, u.whole > u.synced
	var numbers []uint64
	for number := range u.copies {
		numbers = append(numbers, number)
	}
	done := noted == u.synced
	s.mu.Unlock()
	if done {
		return nil
	}
	if err := s.syncCopies(numbers, whole); err != nil {
		return fmt.Errorf("syncing what was read of %s: %w", s.host.dir, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u.synced = max(u.synced, noted)
	for _, number := range numbers {
		if u.copies[number] <= noted {
			delete(u.copies, number)
		}
	}
	return nil
}

// syncCopies syncs copies, or all of the file system, and then the journal.
func (s *sourceStore) syncCopies(numbers []uint64, whole bool) error {
	dir, err := openat(s.copies, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if whole {
		return unix.Syncfs(dir)
	}
	begin := func(fd int) error { return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) }
	for _, step := range []func(fd int) error{begin, unix.Fsync} { // first all are begun
		for _, number := range numbers {
			if err := s.withCopy(number, step); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.log.f.Sync(), unix.Fsync(dir))
}

// withCopy calls fn with a copy, if it is there: once the import has ended it may be removed.
func (s *sourceStore) withCopy(number uint64, fn func(fd int) error) error {
	fd, err := openat(s.copies, copyName(number), unix.O_RDONLY, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(fn(fd), unix.Close(fd))
}
