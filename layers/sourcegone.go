package layers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// errRemoved says that the directory of a source layer is not in the file system any more.
var errRemoved = fmt.Errorf("the directory was removed before it was stored: %w", unix.EIO)

// A name that was listed and is gone before it was read may come back at once, as with a checkout. So it is looked at
// again each time that somebody asks for it, until the import has ended: what is gone then is not in the image, and is
// counted. The import ends when what is gone has stayed so for a while.

// settlePauses are how long the import waits for names to come back.
var settlePauses = [...]time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}

// mostRounds is in how many walks of an import names come back. What comes and goes all the time is then gone.
const mostRounds = mostPasses / 2

// isAway reports whether an error says that a name, or the directory it was in, is not there.
func isAway(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

// vanish notes that a name is gone that nobody has read, unless it was seen elsewhere meanwhile, or was only looked for
// where it had been moved. unix.ESTALE: the image has it.
func (s *sourceStore) vanish(d *sourceDir, e *sourceName, number uint64, at sourcePlace) error {
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
	if s.moved[number] == at {
		delete(s.moved, number)
		return nil
	}
	if err := s.there(); err != nil {
		return err
	}
	s.changedLocked(d, e.name)
	s.walk.againLocked(number, s.files[number].pass)
	s.loseLocked(d, e)
	return nil
}

// loseLocked notes that a name is gone. The journal does not tell: after a crash it is looked at again. mu is held.
func (s *sourceStore) loseLocked(d *sourceDir, e *sourceName) {
	e.vanish()
	s.walk.loseLocked(sourcePlace{d, e.name})
}

// loseDir notes that a directory is gone that nobody has listed. It is empty until it comes back.
func (s *sourceStore) loseDir(d *sourceDir) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.listed || s.walk.ended {
		return nil
	}
	at := sourcePlace{dir: d}
	if _, ok := s.walk.lost[at]; ok {
		return nil
	}
	if err := s.there(); err != nil {
		return err
	}
	s.changedLocked(d.up, d.name)
	s.walk.loseLocked(at)
	return nil
}

// comeBack looks at a name again that is gone. It is true if the name is there.
func (s *sourceStore) comeBack(d *sourceDir, e *sourceName, number uint64) (bool, error) {
	s.mu.Lock()
	final := s.walk.ended || s.walk.round > mostRounds
	s.mu.Unlock()
	if final {
		return false, nil
	}
	s.reopen(d)
	sx, facts, err := s.look(d, e.name, false)
	if isAway(err) {
		return false, s.there()
	}
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, typ, gone := e.get()
	if !gone || now != number || s.walk.ended {
		return !gone, nil
	}
	if seen, ok := s.seenAsLocked(number); ok && !seen.is(&facts.attr) { // of another name
		if err := s.renumberLocked(d, e, sx.Ino, facts.attr.typ()); err != nil {
			return false, err
		}
	} else {
		e.set(number, typ)
	}
	s.foundLocked(sourcePlace{d, e.name})
	return true, nil
}

// is reports whether what was seen is the inode that has these attributes.
func (o *observed) is(a *Attr) bool { return o.attr.typ() == a.typ() && o.attr.Btime == a.Btime }

// reopen has a directory opened by its path: another one may be there than the one whose descriptor is cached.
func (s *sourceStore) reopen(d *sourceDir) {
	for ; d.up != nil; d = d.up {
		descriptors.drop(d.at)
	}
}

// foundLocked notes that a name is there again. If the import has passed it as gone, it begins anew. mu is held.
func (s *sourceStore) foundLocked(at sourcePlace) {
	pass, lost := s.walk.lost[at]
	if !lost {
		return
	}
	delete(s.walk.lost, at)
	if pass == s.walk.pass && pass != 0 {
		s.walk.anew = true
	}
}

// passLost notes that the import has passed a name as gone. It is false if that is there again.
func (s *sourceStore) passLost(at sourcePlace) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.walk.lost[at]; !ok {
		return false
	}
	s.walk.lost[at] = s.walk.pass
	return true
}

// ErrAway is a unix.ENOENT of a name that may come back: nobody must remember that it is not there.
var ErrAway = fmt.Errorf("the name was removed before it was read: %w", unix.ENOENT)

// awayOr is ErrAway for a name that is not there and may come back to one of the directories, else the error. tree is
// held.
func awayOr(err error, parts []*part, name string) error {
	if !errors.Is(err, unix.ENOENT) {
		return err
	}
	for _, o := range parts {
		if s := o.layer.lower.source; s != nil && s.isLost(o, name) {
			return ErrAway
		}
	}
	return err
}

// isLost reports whether a name, or the directory that it may be in, is gone and may come back.
func (s *sourceStore) isLost(o *part, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dirLocked(o)
	if d == nil || s.walk.ended {
		return false
	}
	_, dir := s.walk.lost[sourcePlace{dir: d}]
	_, here := s.walk.lost[sourcePlace{d, name}]
	return dir || here
}

// dirLocked gives the directory of a part, if it is known. mu is held.
func (s *sourceStore) dirLocked(o *part) *sourceDir {
	if o.parent == nil {
		return s.dirs[rootIno]
	}
	return s.dirs[o.ino]
}

// listAll lists a directory of a layer for the kernel, which remembers the names: those that may come back are among
// them. unix.ENOENT: the directory may come back.
func listAll(o *part, fn func(rawEntry) error) error {
	s := o.layer.lower.source
	if s == nil {
		return o.backend().list(o, fn)
	}
	if err := s.listNames(o, true, fn); err != nil || !s.isLost(o, "") {
		return err
	}
	return ErrAway
}

// settle waits for names that are gone to come back. errAgain: one has.
func (s *sourceStore) settle(ctx context.Context) error {
	for _, pause := range settlePauses {
		s.mu.Lock()
		places := slices.Collect(maps.Keys(s.walk.lost))
		s.mu.Unlock()
		if len(places) == 0 {
			return nil
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		for _, at := range places {
			if ctx.Err() != nil {
				break
			}
			_ = s.lookAgain(at) // no error is new: the walk has been there
		}
		s.mu.Lock()
		anew := s.walk.anew
		s.mu.Unlock()
		if anew {
			return errAgain
		}
	}
	return nil
}

// lookAgain looks at a name that is gone, or lists a directory that is.
func (s *sourceStore) lookAgain(at sourcePlace) error {
	names, err := s.namesIn(at.dir)
	if err != nil || at.name == "" {
		return err
	}
	_, err = s.observe(at.dir, nameAmong(names, at.name))
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// sleep waits, or for the end of the context.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// mostLost is of how many names SourceLost tells.
const mostLost = 5

// SourceLost counts the names in a layer of OpenSource that were listed and are gone, and tells some. They may come back
// until StoreSource calls the fn that it was given; then they are not in the image. A directory counts as one if it was
// gone before it was listed: it is empty.
func (l *Lower) SourceLost() (n int, some []string) {
	if l.source == nil {
		return 0, nil
	}
	s := l.source
	if lost := s.lost.Load(); lost != nil {
		return lost.n, slices.Clone(lost.some)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lostLocked()
}

// lostNames is what SourceLost tells once the image is made: fn of StoreSource is called within a transaction of the
// store, where sourceStore.mu is not taken.
type lostNames struct {
	n    int
	some []string
}

// lostLocked is SourceLost. mu is held.
func (s *sourceStore) lostLocked() (n int, some []string) {
	for at := range s.walk.lost {
		if len(some) == mostLost {
			break
		}
		if at.name == "" {
			some = append(some, at.dir.up.path(at.dir.name)+"/")
		} else {
			some = append(some, at.dir.path(at.name))
		}
	}
	slices.Sort(some)
	return len(s.walk.lost), some
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
