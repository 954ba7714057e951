package layers

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/statcache"
	"snapfs/squashfs"
)

// Seen is what StoreTree knows from the last import of a directory, and notes for the next one. Find is called from
// several goroutines, the others from one at a time.
type Seen interface {
	// Len is how many files were noted.
	Len() int
	// Find gives what was noted of a file that has not changed since.
	Find(f statcache.File) (note []byte, ok bool)
	// Note notes a file that was read, Keep one whose note was found and is still right.
	Note(f statcache.File, note []byte)
	Keep(f statcache.File, note []byte)
}

// A file is unchanged if its inode number, size and times are. Its change time cannot be set, and every change sets it,
// with these exceptions, which are why not every file is noted:
//
//   - The clock for change times ticks some hundred times a second, so a change just after the file was read may leave
//     the change time as it was. Only a file that was last changed some time before it is read is noted. Since Linux 6.13
//     some file systems change the time nevertheless if somebody has asked for it (multigrain timestamps).
//   - A program that writes by a shared mapping changes the time only with the first write to a page since the page was
//     last written to the disk. So a file is written to the disk before its times are looked at, and then read: the
//     next write changes the time.
//   - Other file systems than those listed below may keep no change times, take them from a server with another clock,
//     or, as tmpfs, not notice writes by mappings.

// exactTimes lists the file systems on which change times can be relied on.
var exactTimes = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
}

const (
	clockTick = 100 * time.Millisecond  // more than the clock of change times takes for one
	wholeTick = 2100 * time.Millisecond // the same where change times are whole seconds
	young     = 10 * time.Minute        // what changed later may not be on the disk yet
	fewYoung  = 64                      // young files that are written one by one
)

// recaller takes the contents of files that have not changed since the last import from the store.
type recaller struct {
	seen Seen
	sink *sink
	dev  uint64 // of the tree
	fine bool   // a change after statx(2) gives another change time, however soon

	fresh atomic.Int32 // young files met
	flush sync.Once    // of the file system
	since int64        // when flush began; set by it, 0 if it failed
}

// newRecaller gives that of a tree; nil if all of it is to be read.
func (t *tree) newRecaller(opts StoreOptions, k *sink) *recaller {
	if !t.exact {
		return nil
	}
	return newRecaller(t.store.root, opts, k)
}

// newRecaller gives that of a directory on a file system whose change times can be relied on.
func newRecaller(root int, opts StoreOptions, k *sink) *recaller {
	if opts.Seen == nil {
		return nil
	}
	var sx unix.Statx_t
	if err := statx(root, "", unix.AT_EMPTY_PATH, unix.STATX_INO, &sx); err != nil {
		return nil
	}
	dev := unix.Mkdev(sx.Dev_major, sx.Dev_minor)
	seen := opts.Seen(dev, sx.Ino)
	if seen == nil {
		return nil
	}
	k.known = seen.Len()
	return &recaller{seen: seen, sink: k, dev: dev}
}

// asListed finds what was noted of a file that has not changed, by what statx(2) told when it was listed; nil if nothing.
func (r *recaller) asListed(sx *unix.Statx_t, a *Attr) *seenFile {
	was, ok := r.fileOf(sx, a)
	if !ok {
		return nil
	}
	note, ok := r.seen.Find(was)
	if !ok {
		return nil
	}
	return &seenFile{file: was, note: note}
}

// seenFile is a file of which there is a note.
type seenFile struct {
	file statcache.File
	note []byte
}

// bare reports whether the file has no extended attributes.
func (f *seenFile) bare() bool { return f != nil && len(f.note) > 0 && f.note[0]&noteBare != 0 }

// unopened gives the contents of a file as it was listed, without opening it, if the store has them and this process
// may read the file. A process that acts for another user opens the file: that tells for certain what the user may read.
func (t *tree) unopened(s *viewNode, e *squashfs.Entry) (*knownFile, bool) {
	if s.seen == nil || t.do != nil || !t.mayRead(s.parts[0], e) {
		return nil, false
	}
	return t.recaller.recall(s.seen.file, s.seen.note)
}

// mayRead reports whether this process may read a file that was listed.
func (t *tree) mayRead(o *part, e *squashfs.Entry) bool {
	if e.Attr.Mode&unix.S_IRUSR != 0 && int(e.Attr.UID) == os.Geteuid() {
		return true
	}
	p, h, err := t.store.at(o)
	if err != nil {
		return false
	}
	defer h.release()
	return unix.Faccessat2(p.dirfd, p.name, unix.R_OK, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW) == nil
}

// open gives the contents of an open file: those that the store has if it has not changed, else f, which notes them.
func (r *recaller) open(f wholeFile, e *squashfs.Entry) squashfs.File {
	was, ok := r.stat(f.d.fd, e)
	if !ok {
		return f
	}
	if note, ok := r.seen.Find(was); ok {
		if known, ok := r.recall(was, note); ok {
			_ = f.Close() // it was opened for reading only
			return known
		}
	}
	if !r.settled(f.d.fd, was.Ctime) {
		return f
	}
	if now, ok := r.stat(f.d.fd, e); !ok || now != was {
		return f
	}
	return &notedFile{wholeFile: f, by: r, file: was, bare: len(e.Xattrs) == 0}
}

// stat looks at an open file. It is false if that is not the one that was listed.
func (r *recaller) stat(fd int, e *squashfs.Entry) (statcache.File, bool) {
	var sx unix.Statx_t
	if err := statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &sx); err != nil {
		return statcache.File{}, false
	}
	a := hostAttr(&sx)
	if a.Ino != e.Attr.Ino || int64(a.Size) != e.Attr.Size || a.Ctime != e.Attr.Ctime || a.Mtime != e.Attr.Mtime {
		return statcache.File{}, false
	}
	return r.fileOf(&sx, &a)
}

// fileOf is a file as it is noted. It is false for one that is not: of another file system, or of times that are too far
// away.
func (r *recaller) fileOf(sx *unix.Statx_t, a *Attr) (statcache.File, bool) {
	f, ok := notedAs(a)
	return f, ok && unix.Mkdev(sx.Dev_major, sx.Dev_minor) == r.dev
}

// notedAs is fileOf for a file that is known to be of the file system.
func notedAs(a *Attr) (statcache.File, bool) {
	f := statcache.File{Ino: a.Ino, Size: int64(a.Size)}
	var c, m, b bool
	f.Ctime, c = nanoseconds(a.Ctime)
	f.Mtime, m = nanoseconds(a.Mtime)
	f.Btime, b = nanoseconds(a.Btime)
	return f, c && m && b
}

// nanoseconds is a time as a number of them since 1970, if there are not too many.
func nanoseconds(t squashfs.Time) (int64, bool) {
	const most = math.MaxInt64/int64(time.Second) - 1
	return t.Sec*int64(time.Second) + int64(t.Nsec), t.Sec > -most && t.Sec < most
}

// settled writes an open file to the disk, and reports whether each change from now on makes its change time another
// one.
func (r *recaller) settled(fd int, ctime int64) bool {
	since := coarseNow()
	switch {
	case since-ctime < int64(young) && r.fresh.Add(1) > fewYoung:
		r.flush.Do(func() {
			if unix.Syncfs(fd) == nil {
				r.since = since
			}
		})
		since = r.since
	case unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|
		unix.SYNC_FILE_RANGE_WAIT_AFTER) != nil:
		return false
	case r.fine && ctime%int64(time.Second) != 0:
		return true
	}
	return isOld(ctime, since)
}

// isOld reports whether a change after a time, by the clock of change times, gives another change time than this.
func isOld(ctime, since int64) bool {
	margin := clockTick
	if ctime%int64(time.Second) == 0 {
		margin = wholeTick
	}
	return ctime < since-int64(margin)
}

// isFine reports whether a file system with a directory of this process has multigrain timestamps.
func isFine(dir string) bool {
	fd, err := unix.Open(dir, unix.O_RDWR|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var before Time
	for i := range uint32(6) { // one tick of the clock may pass meanwhile, not five
		a, err := location{dirfd: fd}.hostStat()
		if err != nil || a.Ctime == before {
			return false
		}
		before = a.Ctime
		if err := unix.Fchmod(fd, 0o600|i%2); err != nil {
			return false
		}
	}
	return true
}

// coarseNow is the time by the clock of change times.
func coarseNow() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return math.MinInt64 // nothing is noted
	}
	return ts.Nano()
}

// notedFile is a file that is read and noted.
type notedFile struct {
	wholeFile
	by      *recaller
	file    statcache.File
	extents []squashfs.Extent
	bare    bool // it has no extended attributes
	begun   bool
}

func (f *notedFile) Extents() (list []squashfs.Extent, err error) {
	f.extents, err = f.wholeFile.Extents()
	return f.extents, err
}

// CopyTo implements squashfs.Copier. It copies nothing, but asks for the outline of what is read.
func (f *notedFile) CopyTo(to squashfs.Sink, _, n int64) (int64, bool, error) {
	if to != squashfs.Sink(f.by.sink) || f.begun {
		return n, false, nil
	}
	f.begun = true
	head := appendNote(nil, f.extents, f.file.Size, f.bare)
	file, seen := f.file, f.by.seen // not the contents
	return n, false, f.by.sink.Outline(func(outline []byte) { seen.Note(file, append(head, outline...)) })
}

// A note is a byte of flags, the number of extents, as uvarints the offset and the length of each, and the outline. A
// file without holes has no extents in its note.
func appendNote(b []byte, extents []squashfs.Extent, size int64, bare bool) []byte {
	flags := byte(0)
	if bare {
		flags = noteBare
	}
	b = append(b, flags)
	if len(extents) == 1 && extents[0].Off == 0 && extents[0].Len >= size {
		extents = nil
	}
	b = binary.AppendUvarint(b, uint64(len(extents)))
	for _, x := range extents {
		b = binary.AppendUvarint(b, uint64(x.Off))
		b = binary.AppendUvarint(b, uint64(x.Len))
	}
	return b
}

// noteBare is the flag of a file without extended attributes.
const noteBare = 1

func parseNote(b []byte, size int64) (extents []squashfs.Extent, outline []byte, ok bool) {
	next := func() int64 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > math.MaxInt64 {
			b = nil
			return -1
		}
		b = b[n:]
		return int64(v)
	}
	if len(b) == 0 || b[0]&^noteBare != 0 {
		return nil, nil, false
	}
	b = b[1:]
	count := next()
	if count == 0 {
		return []squashfs.Extent{{Len: size}}, b, true
	}
	for range min(count, int64(len(b))) {
		extents = append(extents, squashfs.Extent{Off: next(), Len: next()})
	}
	return extents, b, int64(len(extents)) == count && len(b) > 0
}

// recall finds the contents of an unchanged file in the store. Whatever is wrong with what was noted, the file can be
// read.
func (r *recaller) recall(f statcache.File, note []byte) (*knownFile, bool) {
	extents, outline, ok := parseNote(note, f.Size)
	if !ok {
		return nil, false
	}
	known, ok, err := r.sink.Recall(outline)
	if err != nil || !ok {
		return nil, false
	}
	return &knownFile{by: r, file: f, note: note, extents: extents, known: known}, true
}

// knownFile is a file whose contents the store has.
type knownFile struct {
	by      *recaller
	file    statcache.File
	note    []byte
	extents []squashfs.Extent
	known   *chunkstore.Known
	given   bool
}

// errNoted says that a note is wrong.
var errNoted = errors.New("what was noted of a file does not fit it")

func (f *knownFile) ReadAt([]byte, int64) (int, error)   { return 0, errNoted }
func (f *knownFile) Extents() ([]squashfs.Extent, error) { return f.extents, nil }
func (f *knownFile) Close() error                        { return nil }

// CopyTo implements squashfs.Copier: the first call gives all contents.
func (f *knownFile) CopyTo(to squashfs.Sink, _, n int64) (int64, bool, error) {
	if f.given {
		return n, true, nil
	}
	k := f.by.sink
	if to != squashfs.Sink(k) || k.size != f.known.Size() {
		return 0, false, errNoted
	}
	f.given = true
	seen, file, note := f.by.seen, f.file, f.note
	if err := k.Outline(func([]byte) { seen.Keep(file, note) }); err != nil {
		return 0, false, err
	}
	return n, true, k.Again(f.known)
}
