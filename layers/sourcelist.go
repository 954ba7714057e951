package layers

import (
	"errors"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// maxSourceIno is the greatest number that a source layer gives out.
const maxSourceIno = 1<<32 - 1

// sourceDir is a directory of a source layer that was looked at.
type sourceDir struct {
	sourceInode
	// Immutable.
	at     *part // on the host
	up     *sourceDir
	name   string
	number uint64
	dev    uint64

	listed  bool         // guarded by sourceStore.mu
	names   []sourceName // in order; immutable once listed, but for what is atomic
	subdirs uint32       // as names
}

// sourceName is a name in a directory.
type sourceName struct {
	name string
	word atomic.Uint64 // the number, above it type and nameGone
}

// nameGone says that a name was removed before it was read. It may come back until the import has ended.
const nameGone = 1 << 63

func (e *sourceName) get() (number uint64, typ uint32, gone bool) {
	w := e.word.Load()
	return w & maxSourceIno, uint32(w>>32) & unix.S_IFMT, w&nameGone != 0
}

func (e *sourceName) set(number uint64, typ uint32) { e.word.Store(number | uint64(typ)<<32) }
func (e *sourceName) vanish()                       { e.word.Or(nameGone) }

// path is that of a name in the directory, relative to the root.
func (d *sourceDir) path(name string) string {
	parts := []string{name}
	for ; d.up != nil; d = d.up {
		parts = append(parts, d.name)
	}
	slices.Reverse(parts)
	return strings.Join(parts, "/")
}

// addDirLocked notes a directory. mu is held.
func (s *sourceStore) addDirLocked(up *sourceDir, name string, number, dev uint64, facts sourceInode) *sourceDir {
	d := &sourceDir{sourceInode: facts, up: up, name: name, number: number, dev: dev}
	d.attr.Ino = number
	if up == nil {
		d.at = rootPart(s.host.layer)
	} else {
		d.at = &part{layer: s.host.layer, parent: up.at, name: name}
	}
	s.dirs[number] = d
	return d
}

// list implements backend.
func (s *sourceStore) list(o *part, fn func(rawEntry) error) error { return s.listNames(o, false, fn) }

// listNames is list, with the names that are gone and may come back if away is set.
func (s *sourceStore) listNames(o *part, away bool, fn func(rawEntry) error) error {
	d, err := s.dirOf(o)
	if err != nil {
		return err
	}
	names, err := s.namesIn(d)
	if err != nil {
		return err
	}
	away = away && !s.isEnded()
	for i := range names {
		e := &names[i]
		number, typ, gone := e.get()
		if gone && !away {
			continue
		}
		if err := fn(rawEntry{name: e.name, typ: typ, ino: number, id: number}); err != nil {
			return err
		}
	}
	return nil
}

// isListed reports whether the names of a directory are fixed.
func (s *sourceStore) isListed(d *sourceDir) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.listed
}

// isEnded reports whether the image is made.
func (s *sourceStore) isEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.walk.ended
}

// entryOf gives a name of a directory; unix.ENOENT.
func (s *sourceStore) entryOf(d *sourceDir, name string) (*sourceName, error) {
	names, err := s.namesIn(d)
	if err != nil {
		return nil, err
	}
	if e := nameAmong(names, name); e != nil {
		return e, nil
	}
	return nil, unix.ENOENT
}

// nameAmong finds a name; nil if it is not there.
func nameAmong(names []sourceName, name string) *sourceName {
	i := sort.Search(len(names), func(i int) bool { return names[i].name >= name })
	if i == len(names) || names[i].name != name {
		return nil
	}
	return &names[i]
}

// listedName is a name as the host lists it.
type listedName struct {
	name string
	host uint64
	typ  uint32
	sx   *unix.Statx_t // nil: not looked at
}

// namesIn gives the names of a directory, which it lists if nobody has. One that is gone has none.
func (s *sourceStore) namesIn(d *sourceDir) ([]sourceName, error) {
	s.mu.Lock()
	names, listed := d.names, d.listed || s.walk.ended
	s.mu.Unlock()
	if listed {
		return names, nil
	}
	list, err := s.hostNames(d)
	if isAway(err) {
		s.reopen(d)
		list, err = s.hostNames(d)
	}
	if isAway(err) {
		return nil, s.loseDir(d)
	}
	if err != nil {
		return nil, err
	}
	for {
		var asked []int
		if names, asked, err = s.publish(d, list); asked == nil {
			return names, err
		}
		for _, i := range asked {
			sx, _, err := s.look(d, list[i].name, false)
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return nil, err
			}
			if list[i].sx = &sx; err == nil {
				list[i].typ = uint32(sx.Mode) & unix.S_IFMT
			}
		}
	}
}

// hostNames lists a directory of the host, in order.
func (s *sourceStore) hostNames(d *sourceDir) ([]listedName, error) {
	var list []listedName
	err := s.do(func() error {
		h, err := s.host.store.dir(d.at)
		if err != nil {
			return err
		}
		defer h.release()
		return eachName(h.fd, func(name string, ino uint64, typ uint32) error {
			list = append(list, listedName{name: name, host: ino, typ: typ})
			return nil
		})
	})
	slices.SortFunc(list, func(a, b listedName) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(list, func(a, b listedName) bool { return a.name == b.name }), err
}

// publish fixes the names of a directory. asked are those that must be looked at first, because their inodes were seen
// under other names.
func (s *sourceStore) publish(d *sourceDir, list []listedName) (names []sourceName, asked []int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.listed || s.walk.ended {
		return d.names, nil, nil
	}
	own := map[uint64]bool{} // hosts' numbers in this list that are not given yet
	for i := range list {
		l := &list[i]
		if l.sx != nil {
			continue
		}
		if l.typ == 0 || s.takenLocked(d, l.host) || own[l.host] {
			asked = append(asked, i)
		} else if l.typ != unix.S_IFDIR {
			own[l.host] = true
		}
	}
	if asked != nil {
		return nil, asked, nil
	}
	return s.publishLocked(d, list)
}

// publishLocked is publish when nothing is asked any more. mu is held.
func (s *sourceStore) publishLocked(d *sourceDir, list []listedName) (names []sourceName, _ []int, err error) {
	var blob strings.Builder
	for _, l := range list {
		blob.WriteString(l.name)
	}
	rest := blob.String() // one piece of memory for all
	d.names = make([]sourceName, 0, len(list))
	var fresh []uint64
	var lost []*sourceName
	for i := range list {
		l := &list[i]
		name := rest[:len(l.name)]
		rest = rest[len(l.name):]
		number, ok, isNew := s.numberLocked(d, l)
		if !ok {
			continue
		}
		if isNew {
			fresh = append(fresh, number)
		}
		d.names = d.names[:len(d.names)+1]
		e := &d.names[len(d.names)-1]
		e.name = name
		e.set(number, l.typ)
		if l.sx != nil && l.sx.Mask == 0 {
			lost = append(lost, e)
		}
		if l.typ == unix.S_IFDIR {
			d.subdirs++
		}
	}
	if err := s.log.names(d); err != nil {
		d.names, d.subdirs = nil, 0
		for _, number := range fresh {
			s.takeBackLocked(number)
		}
		maps.DeleteFunc(s.linked, func(_ deviceInode, n uint64) bool { return !s.given.Contains(n) })
		return nil, nil, err
	}
	d.listed = true
	for _, e := range lost {
		s.loseLocked(d, e)
	}
	s.foundLocked(sourcePlace{dir: d})
	return d.names, nil, nil
}

// takenLocked reports whether a host's inode cannot simply have its own number. mu is held.
func (s *sourceStore) takenLocked(d *sourceDir, host uint64) bool {
	return d.dev != s.dev || host <= rootIno || host > maxSourceIno || s.given.Contains(host)
}

// numberLocked gives an inode its number; ok is false for a file that is to be seen elsewhere. mu is
// held.
func (s *sourceStore) numberLocked(d *sourceDir, l *listedName) (number uint64, ok, isNew bool) {
	if l.sx == nil || !s.takenLocked(d, l.host) {
		return l.host, true, s.given.CheckedAdd(l.host)
	}
	sx := l.sx
	if sx.Mask == 0 { // it is gone
		return s.freshLocked(l.host), true, true
	}
	host := deviceInode{unix.Mkdev(sx.Dev_major, sx.Dev_minor), sx.Ino, hostAttr(sx).Btime}
	if l.typ == unix.S_IFDIR {
		return s.freshLocked(sx.Ino), true, true
	}
	_, other := s.bound[sx.Ino]
	own := host.dev == s.dev && sx.Ino <= maxSourceIno && s.given.Contains(sx.Ino) && !other
	if sx.Nlink > 1 {
		if n, ok := s.linked[host]; ok {
			s.shared.Add(n)
			return n, true, false
		}
		if own && !s.otherLocked(sx) {
			s.shared.Add(sx.Ino)
			return sx.Ino, true, false
		}
		n := s.freshLocked(sx.Ino)
		s.linked[host] = n
		return n, true, true
	}
	if own && isReg(l.typ) && s.sameBirthLocked(sx) {
		s.changedLocked(d, l.name)
		if s.fixed[sx.Ino] == nil {
			s.moved[sx.Ino] = sourcePlace{d, l.name}
		}
		return 0, false, false
	}
	return s.freshLocked(sx.Ino), true, true
}

// sameBirthLocked reports whether a file is the one that was told of with its number. mu is held.
func (s *sourceStore) sameBirthLocked(sx *unix.Statx_t) bool {
	birth := hostAttr(sx).Btime
	if x := s.fixed[sx.Ino]; x != nil {
		return x.attr.Btime == birth
	}
	f := s.files[sx.Ino]
	return f.stamp != 0 && f.birth == generation(birth)
}

// otherLocked reports whether another inode was seen with the number of a file. mu is held.
func (s *sourceStore) otherLocked(sx *unix.Statx_t) bool {
	a := hostAttr(sx)
	if seen, ok := s.seenAsLocked(sx.Ino); ok {
		return seen.attr.typ() != a.typ() || seen.attr.Btime != a.Btime
	}
	return s.files[sx.Ino].stamp != 0 && (!isReg(a.Mode) || !s.sameBirthLocked(sx))
}

// freshLocked gives a number that no inode of the host has had so far. mu is held.
func (s *sourceStore) freshLocked(host uint64) uint64 {
	for s.given.Contains(s.next) {
		s.next--
	}
	n := s.next
	s.given.Add(n)
	s.bound[n] = host
	return n
}

// changeCount counts changes that were noticed.
type changeCount struct{ atomic.Int64 }

// changedLocked tells of a change. mu is held.
func (s *sourceStore) changedLocked(d *sourceDir, name string) {
	s.changes.Add(1)
	if s.opts.Changed != nil {
		s.opts.Changed(d.path(name))
	}
}
