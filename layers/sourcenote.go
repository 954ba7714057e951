package layers

import "golang.org/x/sys/unix"

// note takes in what the host says of a name. It is false if the name is to be looked at once more.
func (s *sourceStore) note(
	d *sourceDir, e *sourceName, number uint64, sx *unix.Statx_t, facts *sourceInode,
) (o observed, ok bool, err error) {
	a := facts.attr
	a.Ino = number
	facts.attr.Ino = number
	s.mu.Lock()
	defer s.mu.Unlock()
	now, typ, gone := e.get()
	if gone || now != number {
		return observed{}, false, nil
	}
	if again, err := s.reboundLocked(d, e, number, typ, sx, &a); again || err != nil {
		return observed{}, false, err
	}
	if seen, ok := s.seenAsLocked(number); ok {
		return seen, true, nil
	}
	out := mountOf(sx) != s.host.mount // what is mounted there is left out
	switch {
	case isDir(a.Mode):
		dev := unix.Mkdev(sx.Dev_major, sx.Dev_minor)
		n := s.addDirLocked(d, e.name, number, dev, *facts)
		n.listed = out
		if err := s.log.dir(n); err != nil {
			delete(s.dirs, number)
			return observed{}, false, err
		}
		o = observed{attr: a, fixed: &n.sourceInode}
	case !isReg(a.Mode) || out:
		if isReg(a.Mode) {
			facts.attr.Size, facts.attr.Blocks = 0, 0
		}
		if err := s.log.inode(number, facts); err != nil {
			return observed{}, false, err
		}
		s.fixed[number] = facts
		o = observed{attr: facts.attr, fixed: facts}
	default:
		f := s.tellLocked(d, e.name, number, sx, &a)
		return observed{attr: a, version: f.version}, true, nil
	}
	if out && (isDir(a.Mode) || isReg(a.Mode)) {
		s.leftOut.Add(1)
	}
	return o, true, nil
}

// reboundLocked gives a name whose inode is another one than that which was listed a number of its own, where it must
// have one. It is true if the name is to be looked at once more. mu is held.
func (s *sourceStore) reboundLocked(
	d *sourceDir, e *sourceName, number uint64, typ uint32, sx *unix.Statx_t, a *Attr,
) (again bool, err error) {
	host, ok := s.bound[number]
	if !ok {
		host = number
	}
	if host == sx.Ino && typ == a.typ() || mountOf(sx) != s.host.mount {
		return false, nil
	}
	if _, ok := s.moved[number]; ok {
		delete(s.moved, number) // another one is there now
		return true, nil
	}
	s.changedLocked(d, e.name)
	if typ == a.typ() && !s.shared.Contains(number) {
		s.bound[number] = sx.Ino
		return false, nil
	}
	return true, s.renumberLocked(d, e, sx.Ino, a.typ())
}

// renumberLocked gives a name a number of its own. mu is held.
func (s *sourceStore) renumberLocked(d *sourceDir, e *sourceName, host uint64, typ uint32) error {
	was := e.word.Load()
	n := s.freshLocked(host)
	e.set(n, typ)
	err := s.log.name(d, e)
	if err != nil {
		e.word.Store(was)
		s.takeBackLocked(n)
	}
	return err
}

// takeBackLocked has a number be nobody's again. mu is held.
func (s *sourceStore) takeBackLocked(number uint64) {
	s.given.Remove(number)
	delete(s.bound, number)
}

// tellLocked notes what is told of a regular file. mu is held.
func (s *sourceStore) tellLocked(d *sourceDir, name string, number uint64, sx *unix.Statx_t, a *Attr) sourceFile {
	stamp := stampOf(sx)
	f := s.files[number]
	if f.stamp == stamp {
		return f
	}
	s.walk.toldLocked(number, f)
	if f.stamp != 0 {
		s.changedLocked(d, name)
		s.walk.againLocked(number, f.pass)
		s.walk.olderLocked(number, f)
		f.version++
	}
	f.stamp, f.size, f.birth = stamp, int64(a.Size), generation(a.Btime)
	s.files[number] = f
	return f
}

// stampOf is what changes with every change of a file; never 0.
func stampOf(sx *unix.Statx_t) uint64 {
	h := uint64(14695981039346656037)
	for _, v := range [...]uint64{
		sx.Ino, sx.Size, uint64(sx.Mtime.Sec), uint64(sx.Mtime.Nsec), uint64(sx.Ctime.Sec), uint64(sx.Ctime.Nsec),
	} {
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return max(h, 1)
}
