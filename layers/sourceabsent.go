package layers

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// absent is why the directory of a source layer is not there: what it has shown of it is all that there is.
type absent struct{ err error }

// openAbsent presents a directory that is not there.
func openAbsent(dir string, do func(fn func() error) error) *tree {
	t := &tree{dir: dir, store: &dirStore{root: -1, sealed: true, apart: true}, do: do}
	t.layer = &layer{lower: newDirLower(dir, t.store)}
	return t
}

// SourceAbsent reports whether a layer was opened with SourceOptions.Absent, and its directory was not found since.
func (l *Lower) SourceAbsent() bool { return l.source != nil && l.source.absent.Load() != nil }

// ReopenSource has a layer that was opened with SourceOptions.Absent go on with its directory, which is there again;
// ErrOtherSource. Safe for concurrent use; unix.EBUSY while another call is at it.
func (l *Lower) ReopenSource() error {
	if !l.SourceAbsent() {
		return nil
	}
	s := l.source
	if !s.reopening.CompareAndSwap(false, true) {
		return unix.EBUSY
	}
	defer s.reopening.Store(false)
	if !l.SourceAbsent() {
		return nil // another call has done it
	}
	t, err := openTreeAs(s.host.dir, s.opts.Do)
	if err != nil {
		return err
	}
	var sx unix.Statx_t
	if _, err = t.stat(location{dirfd: t.store.root, name: "."}, &sx); err == nil {
		err = s.same(&sx)
	}
	if err != nil {
		t.close()
		return fmt.Errorf("open source %s: %w", s.host.dir, err)
	}
	s.host.store.root, s.host.mount, s.host.exact, s.host.local = t.store.root, t.mount, t.exact, t.local
	s.absent.Store(nil) // from here on it is used
	return nil
}

// same reports whether the root is the directory that was seen.
func (s *sourceStore) same(sx *unix.Statx_t) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dirs[rootIno]
	if d.attr.Btime != hostAttr(sx).Btime {
		return ErrOtherSource
	}
	s.dev = unix.Mkdev(sx.Dev_major, sx.Dev_minor)
	d.dev = s.dev // another one after a restart of the machine
	return nil
}
