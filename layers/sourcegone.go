package layers

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// errRemoved says that the directory of a source layer is not in the file system any more.
var errRemoved = fmt.Errorf("the directory was removed before it was stored: %w", unix.EIO)

// vanish notes that a name is gone that nobody has read, unless it was seen elsewhere meanwhile. unix.ESTALE: the image
// has it.
func (s *sourceStore) vanish(d *sourceDir, e *sourceName, number uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seenAsLocked(number); ok {
		return nil
	}
	if now, _, gone := e.get(); gone || now != number {
		return nil
	}
	if s.walk.ended {
		return unix.ESTALE
	}
	if err := s.there(); err != nil {
		return err
	}
	s.changedLocked(d, e.name)
	s.walk.againLocked(number, s.files[number].pass)
	e.vanish()
	s.log.name(d, e)
	return nil
}

// there returns errRemoved if the root was removed. What was in it is then not gone because somebody changed it.
func (s *sourceStore) there() error {
	var sx unix.Statx_t
	if err := statx(s.host.store.root, "", unix.AT_EMPTY_PATH, unix.STATX_NLINK, &sx); err != nil {
		return err
	}
	if sx.Nlink == 0 {
		return errRemoved
	}
	return nil
}
