package layers

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
	"snapfs/squashfs"
)

// SourceOptions are for OpenSource.
type SourceOptions struct {
	// Copies is a directory that belongs to the layer alone, and is made if it is missing: copies of the files that were
	// read, and a journal of what was seen. The caller removes it when the last reference of the Lower is gone.
	Copies string
	// Do runs what looks at the directory, with the rights that it needs. nil = with those of this process. Several
	// goroutines call it for as long as the Lower is open.
	Do func(fn func() error) error
	// Closed is called when the last reference of the Lower is gone. nil = nobody is told.
	Closed func()
	// Changed is told of each change of the directory that is noticed, by the path in it. It is called with locks held and
	// must only note it. nil = nobody is told.
	Changed func(path string)
	// Absent says why the directory is not there, if it is known not to be: the layer shows what it has shown before, and
	// all else is unix.EIO until ReopenSource. nil = it is there.
	Absent error
	// Rough is told, as Changed is, of each file that was changed all the time while it was copied: the copy is what it was
	// when the copy began if it is only appended to, else it may be a mixture. nil = nobody is told.
	Rough func(path string)

	held int64 // by tests: in place of maxHeld
}

// sourceStore is a layer in a directory that others write to. What was seen of it stays as it was:
//
//   - the names in a directory, with their types and inode numbers, when it is first listed or a name first looked up;
//   - attributes of all but regular files, and targets, when they are first asked for;
//   - contents, attributes and extended attributes of a regular file when its contents are first read. Until then each
//     look-up asks the directory; a file that has changed has another version then, and what was opened before is stale.
//
// Everything is known by its inode number in the layer, which is below 1<<32. It is that of the host where this is free:
// an inode that has come in the place of another that was seen gets one of its own.
type sourceStore struct {
	// Immutable.
	host    *tree
	opts    SourceOptions
	lower   *Lower
	copies  int // O_PATH: the directory of copies
	changes changeCount
	leftOut atomic.Int64 // mounts in the directory that were met
	onCopy  func()       // by tests: called while a file is copied
	onOpen  func()       // by tests: called before a file is opened
	hasty   bool         // by tests: an import is begun anew at once

	absent    atomic.Pointer[absent] // nil: the directory is there, and host is immutable
	reopening atomic.Bool
	lost      atomic.Pointer[lostNames] // nil: the image is not made

	mu     lockorder.Mutex[lockorder.SourceLayer]
	dirs   map[uint64]*sourceDir    // by number; guarded by mu
	fixed  map[uint64]*sourceInode  // what does not change any more, but for directories; guarded by mu
	files  map[uint64]sourceFile    // regular files that are not fixed; guarded by mu
	given  *roaring64.Bitmap        // numbers; guarded by mu
	shared *roaring64.Bitmap        // numbers that several names were found to have; guarded by mu
	bound  map[uint64]uint64        // the host's number of what has another one; guarded by mu
	linked map[deviceInode]uint64   // numbers of hard-linked inodes that have another than the host's; guarded by mu
	moved  map[uint64]sourcePlace   // where a file has gone that was seen elsewhere; guarded by mu
	next   uint64                   // for numbers that are not the host's; guarded by mu
	busy   map[uint64]chan struct{} // closed when a copy has ended; guarded by mu
	walk   sourceWalk               // the import; guarded by mu
	dev    uint64                   // of the root; guarded by mu
	// What may not be durable; guarded by mu.
	unsynced sourceUnsynced
	log      *sourceJournal
}

// deviceInode is an inode of the host. The time of birth tells it from one that had its number before.
type deviceInode struct {
	dev, ino uint64
	birth    squashfs.Time
}

// sourceInode is what is fixed of an inode.
type sourceInode struct {
	attr Attr
	sourceMore
	at int64 // where the journal has sourceMore, if memory has not; else 0

	// Of a regular file:
	version uint32
	old     []int64 // sizes of the last versions before
	copied  bool    // there is a copy of its contents
	sum     uint32  // of a small copy, see sumOf
}

// sourceFile is what was last told of a regular file that is not fixed.
type sourceFile struct {
	stamp   uint64 // 0: nothing was told
	size    int64
	version uint32
	birth   uint32 // generation of the time of birth
	pass    uint32 // the pass of the import that has taken it last
}

// sourcePlace is a name in a directory.
type sourcePlace struct {
	dir  *sourceDir
	name string
}

// ErrOtherSource says that a directory is not the one of which the copies are.
var ErrOtherSource = errors.New("another directory is in the place of the one that was seen")

// OpenSource opens a directory of the host as a lower while StoreSource makes an image of it, which comes in its place
// then (Overlay.Replace). The path is absolute; a symbolic link in it is an error. After a crash the same Copies have
// the layer show again what it has shown; ErrOtherSource.
func OpenSource(key, dir string, opts SourceOptions) (*Lower, error) {
	if err := os.MkdirAll(opts.Copies, 0o700); err != nil {
		return nil, fmt.Errorf("open source %s: %w", dir, err)
	}
	host, err := openAbsent(dir, opts.Do), error(nil)
	if opts.Absent == nil {
		if host, err = openTreeAs(dir, opts.Do); err != nil {
			return nil, err
		}
	}
	s := &sourceStore{
		host: host, opts: opts, dirs: map[uint64]*sourceDir{}, fixed: map[uint64]*sourceInode{},
		files: map[uint64]sourceFile{}, given: roaring64.New(), shared: roaring64.New(), bound: map[uint64]uint64{},
		linked: map[deviceInode]uint64{}, moved: map[uint64]sourcePlace{}, busy: map[uint64]chan struct{}{}, next: maxSourceIno, copies: -1,
	}
	if err := s.begin(); err != nil {
		_ = s.close() // the first error counts
		return nil, fmt.Errorf("open source %s: %w", dir, err)
	}
	s.lower = &Lower{key: key, source: s, be: s}
	s.lower.refs.Store(1)
	return s.lower, nil
}

// begin opens the copies and looks at the root.
func (s *sourceStore) begin() (err error) {
	if s.copies, err = openat(unix.AT_FDCWD, s.opts.Copies, unix.O_PATH|unix.O_DIRECTORY, 0); err != nil {
		return err
	}
	s.given.Add(rootIno)
	if err := s.openJournal(); err != nil {
		return err
	}
	s.mu.Lock()
	seen := s.dirs[rootIno] != nil
	s.mu.Unlock()
	if why := s.opts.Absent; why != nil {
		if !seen {
			return why // nothing of it was seen
		}
		s.absent.Store(&absent{fmt.Errorf("%w: %w", why, unix.EIO)})
		return nil
	}
	sx, facts, err := s.look(nil, "", true)
	if err != nil {
		return err
	}
	if seen {
		return s.same(&sx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dev = unix.Mkdev(sx.Dev_major, sx.Dev_minor)
	return s.log.dir(s.addDirLocked(nil, "", rootIno, s.dev, *facts))
}

func (s *sourceStore) close() error {
	s.host.close()
	var err error
	if s.log != nil {
		err = s.log.close()
	}
	if s.copies >= 0 {
		_ = unix.Close(s.copies) // O_PATH
	}
	if s.lower != nil && s.opts.Closed != nil {
		s.opts.Closed()
	}
	return err
}

// SourceChanges counts the changes that were noticed in the directory of a layer of OpenSource.
func (l *Lower) SourceChanges() int64 {
	if l.source == nil {
		return 0
	}
	return l.source.changes.Load()
}

// SourceLeftOut counts the mounts that were met in the directory of a layer of OpenSource: what is in them is left out.
func (l *Lower) SourceLeftOut() int {
	if l.source == nil {
		return 0
	}
	return int(l.source.leftOut.Load())
}

// find implements backend.
func (s *sourceStore) find(dir *part, name string) (found, error) {
	d, err := s.dirOf(dir)
	if err != nil {
		return found{}, err
	}
	e, err := s.entryOf(d, name)
	if err != nil {
		return found{}, err
	}
	seen, err := s.observe(d, e)
	if err != nil {
		return found{}, err
	}
	f := found{attr: seen.attr, host: seen.attr.Ino, ref: seen.ref(), bare: seen.fixed != nil && seen.fixed.bare()}
	return f, nil
}

// observed is what is known of a name.
type observed struct {
	attr    Attr
	fixed   *sourceInode // nil: a regular file that may change
	version uint32
}

func (o *observed) ref() uint64 {
	ref := uint64(sourceNotes | uint64(o.version))
	if o.fixed == nil {
		ref |= noteFleet
	}
	return ref
}

// dirOf gives the directory of a part.
func (s *sourceStore) dirOf(o *part) (*sourceDir, error) {
	number := o.ino
	if o.parent == nil {
		number = rootIno
	}
	s.mu.Lock()
	d := s.dirs[number]
	s.mu.Unlock()
	if d != nil {
		return d, nil
	}
	up, err := s.dirOf(o.parent)
	if err != nil {
		return nil, err
	}
	e, err := s.entryOf(up, o.name)
	if err != nil {
		return nil, err
	}
	if _, err := s.observe(up, e); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.dirs[number]; d != nil {
		return d, nil
	}
	return nil, unix.ESTALE
}

// seenAs gives what is fixed of an inode.
func (s *sourceStore) seenAs(number uint64) (observed, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seenAsLocked(number)
}

func (s *sourceStore) seenAsLocked(number uint64) (observed, bool) {
	if d := s.dirs[number]; d != nil {
		o := observed{attr: d.sourceInode.attr, fixed: &d.sourceInode}
		if d.listed && o.attr.Nlink > 1 {
			o.attr.Nlink = 2 + d.subdirs
		}
		return o, true
	}
	if x := s.fixed[number]; x != nil {
		return observed{attr: x.attr, fixed: x, version: x.version}, true
	}
	return observed{}, false
}

// observe looks at a name, and fixes what is no regular file. unix.ENOENT: it is gone.
func (s *sourceStore) observe(d *sourceDir, e *sourceName) (observed, error) {
	for {
		number, _, gone := e.get()
		if gone {
			if back, err := s.comeBack(d, e, number); err != nil {
				return observed{}, err
			} else if !back {
				return observed{}, unix.ENOENT
			}
			continue
		}
		if seen, ok := s.seenAs(number); ok {
			return seen, nil
		}
		at := s.place(number, d, e)
		sx, facts, err := s.look(at.dir, at.name, false)
		if isAway(err) {
			if err := s.vanish(d, e, number, at); err != nil {
				return observed{}, err
			}
			continue
		}
		if err != nil {
			return observed{}, err
		}
		if seen, ok, err := s.note(d, e, number, &sx, facts); ok || err != nil {
			return seen, err
		}
	}
}

// place is where the host has a name now.
func (s *sourceStore) place(number uint64, d *sourceDir, e *sourceName) sourcePlace {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.moved[number]; ok {
		return at
	}
	return sourcePlace{d, e.name}
}

// look asks the host for a name; of what is no regular file, and of those with whole, it reads everything. With no
// directory it looks at the root.
func (s *sourceStore) look(d *sourceDir, name string, whole bool) (sx unix.Statx_t, facts *sourceInode, err error) {
	err = s.do(func() error {
		p := location{dirfd: s.host.store.root, name: ".", foreign: true}
		if d != nil {
			h, err := s.host.store.dir(d.at)
			if err != nil {
				return err
			}
			defer h.release()
			p = location{dirfd: h.fd, name: name, foreign: true}
		}
		apart, err := s.host.stat(p, &sx)
		if err != nil {
			return err
		}
		facts = &sourceInode{attr: sourceAttr(&sx)}
		if apart || isReg(facts.attr.Mode) && !whole {
			return nil
		}
		return s.host.within(p, facts.read)
	})
	return sx, facts, err
}

// read reads extended attributes and the target.
func (x *sourceInode) read(p location) error {
	list, err := p.xattrs()
	if err != nil {
		return err
	}
	x.xattrs = escaped(list)
	if isWhiteoutDevice(x.attr.Mode, x.attr.Rdev) {
		x.xattrs = append(x.xattrs, squashfs.Xattr{Name: xattrNode, Value: []byte("c")})
	}
	if isLnk(x.attr.Mode) {
		x.target, err = p.readlink()
	}
	return err
}

// sourceAttr is a host's stat as the image will have it.
func sourceAttr(sx *unix.Statx_t) Attr {
	a := hostAttr(sx)
	a.Atime, a.Blksize = a.Mtime, 4096
	whole := (a.Size + 511) / 512
	switch {
	case !isReg(a.Mode):
		a.Blocks = 0
	case a.Size <= 4096 || a.Blocks >= whole:
		a.Blocks = whole
	}
	return a
}

// do runs what looks at the directory.
func (s *sourceStore) do(fn func() error) error {
	if a := s.absent.Load(); a != nil {
		return a.err
	}
	if s.host.do == nil {
		return fn()
	}
	return s.host.do(fn)
}

// stat implements backend.
func (s *sourceStore) stat(o *part) (Attr, error) {
	if o.parent == nil {
		seen, _ := s.seenAs(rootIno)
		return seen.attr, nil
	}
	if seen, ok := s.seenAs(o.ino); ok {
		return seen.attr, nil
	}
	d, e, err := s.nameOf(o)
	if err != nil {
		return Attr{}, err
	}
	seen, err := s.observe(d, e)
	return seen.attr, err
}

// nameOf gives the name of a part, which must still have its number.
func (s *sourceStore) nameOf(o *part) (*sourceDir, *sourceName, error) {
	d, err := s.dirOf(o.parent)
	if err != nil {
		return nil, nil, err
	}
	e, err := s.entryOf(d, o.name)
	if err != nil {
		return nil, nil, err
	}
	if number, _, _ := e.get(); number != o.ino {
		return nil, nil, unix.ESTALE
	}
	return d, e, nil
}

// readlink implements backend.
func (s *sourceStore) readlink(o *part) (string, error) {
	if _, err := s.stat(o); err != nil {
		return "", err
	}
	seen, _ := s.seenAs(o.ino)
	if seen.fixed == nil {
		return "", unix.EINVAL
	}
	more, err := s.more(seen.fixed)
	return more.target, err
}

// xattrs implements backend.
func (s *sourceStore) xattrs(o *part) ([]squashfs.Xattr, error) {
	number := o.ino
	if o.parent == nil {
		number = rootIno
	}
	if seen, ok := s.seenAs(number); ok {
		more, err := s.more(seen.fixed)
		return more.xattrs, err
	}
	d, e, err := s.nameOf(o)
	if err != nil {
		return nil, err
	}
	if seen, err := s.observe(d, e); err != nil {
		return nil, err
	} else if seen.fixed != nil {
		more, err := s.more(seen.fixed)
		return more.xattrs, err
	}
	at := s.place(number, d, e)
	_, facts, err := s.look(at.dir, at.name, true)
	if err != nil {
		return nil, err
	}
	return facts.xattrs, nil
}
