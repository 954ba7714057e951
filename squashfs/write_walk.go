package squashfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// writer is what both forms share. Its first pass is here, the second in write_tables.go. Fields belong to the
// goroutine of the walk, except those marked as finish's.
type writer struct {
	src        Source
	data       dataWriter
	blockSize  int
	progress   func(files, bytes int64)
	spools     spooler
	compressor compressor // of metadata
	home       uint64     // StoreOptions.Home
	renumber   bool       // StoreOptions.Renumber
	maxLinks   uint32     // StoreOptions.MaxLinks
	maxInodes  uint32     // StoreOptions.MaxInodes

	stack   []frame // the directories from the root to where the walk is
	held    int     // bytes of attributes of these
	ids     idTable
	xattrs  xattrWriter
	known   *knownContents  // nil: every file is written separately
	links   map[InodeID]int // index in linked
	linked  []hardlink      // by ascending number
	parents []uint32        // inode number of each directory's parent, in the order of the directories' own numbers
	inodes  uint32          // numbers assigned so far
	mtime   uint32          // newest
	ranges  [extExtraNumber]valueRange
	info    Info

	records    *spool // finish's, as the rest
	extras     uint64 // inodes with an extra
	extraBytes uint64
	buf        []byte
}

// hardlink is a file that may have several names.
type hardlink struct{ number, names uint32 }

// dataWriter writes file contents, in which the two forms differ.
type dataWriter interface {
	// file writes the contents of e, open as f, and returns where they are. The layout may become valid later, but
	// before finish is called for an inode that was passed to emit after it.
	file(ctx context.Context, name string, e *Entry, f File, extents []Extent) (*layout, error)
	// emit passes an inode to finish, in the order of the calls.
	emit(ctx context.Context, p pending) error
}

// pending is an inode on its way to finish.
type pending struct {
	inode   spooledInode
	extents []Extent
	foreign []Xattr
}

func newWriter(src Source, tempDir string, progress func(files, bytes int64)) *writer {
	w := &writer{
		src: src, progress: progress, compressor: noCompressor{},
		spools: spooler{dir: tempDir},
		ids:    idTable{index: map[uint32]uint16{}}, links: map[InodeID]int{},
	}
	w.spools.left.Store(spoolMemory)
	w.records = w.spools.spool()
	return w
}

// walk runs the first pass.
func (w *writer) walk(ctx context.Context) error {
	w.xattrs = xattrWriter{
		pairs: newMetaWriter(w.spools.spool(), w.compressor), ids: newMetaWriter(w.spools.spool(), w.compressor),
		known: map[[16]byte]uint32{}, sets: map[uint64]uint32{},
	}
	root, err := w.src.Root(ctx)
	if err != nil {
		return err
	}
	if root.Attr.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("the root of the tree is not a directory")
	}
	if err := w.enter(ctx, root); err != nil {
		return err
	}
	for len(w.stack) > 0 {
		if err := w.step(ctx); err != nil {
			return err
		}
	}
	w.info.Inodes = w.inodes
	return nil
}

// node writes what is not a directory, once for all its names.
func (w *writer) node(ctx context.Context, e *Entry) (uint32, error) {
	if e.Attr.Nlink > 1 {
		if i, ok := w.links[e.inode()]; ok {
			if w.linked[i].names == w.maxLinks {
				return 0, w.failed(e.Name, fmt.Errorf("%w: a file with more than %d names", ErrLinks, w.maxLinks))
			}
			w.linked[i].names++
			return w.linked[i].number, nil
		}
	}
	p := pending{inode: spooledInode{attr: e.Attr}}
	r := &p.inode
	switch basicType(e.Attr.Mode) {
	case typeFile:
		var err error
		if r.layout, p.extents, err = w.file(ctx, e); err != nil {
			return 0, w.failed(e.Name, err)
		}
	case typeSymlink:
		r.target = e.Target
		if len(e.Target) > maxSymlinkTarget || e.Target == "" {
			return 0, w.failed(e.Name, fmt.Errorf("%w: symlink target of %d bytes", ErrLimit, len(e.Target)))
		}
		if strings.Contains(e.Target, "\x00") {
			return 0, w.failed(e.Name, fmt.Errorf("symlink target %q", e.Target))
		}
	case typeBlockDev, typeCharDev:
		if _, ok := encodeDev(e.Attr.Rdev); !ok {
			return 0, w.failed(e.Name, fmt.Errorf("%w: device %#x", ErrLimit, e.Attr.Rdev))
		}
	}
	number, err := w.inode(ctx, e, p)
	if err != nil {
		return 0, err
	}
	if e.Attr.Nlink > 1 {
		w.links[e.inode()] = len(w.linked)
		w.linked = append(w.linked, hardlink{number, 1})
	}
	return number, nil
}

// file writes a regular file's contents.
func (w *writer) file(ctx context.Context, e *Entry) (*layout, []Extent, error) {
	size := e.Attr.Size
	w.info.Files++
	if w.progress != nil {
		defer func() { w.progress(w.info.Files, w.info.Data) }()
	}
	if size == 0 {
		return &layout{fragment: noFragment}, nil, nil
	}
	if size < 0 || (size-1)/int64(w.blockSize) >= MaxBlocks {
		return nil, nil, fmt.Errorf("%w: file of %d bytes at a block size of %d", ErrLimit, size, w.blockSize)
	}
	f, err := w.src.Open(ctx, e)
	if err != nil {
		return nil, nil, err
	}
	done, err := w.contents(ctx, e, f)
	w.info.Data += done.data
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return done.layout, done.extents, err
}

// contents writes the contents of a file, unless they were written for another one.
func (w *writer) contents(ctx context.Context, e *Entry, f File) (written, error) {
	key := knownKey{size: e.Attr.Size}
	shared, _ := f.(Sharer)
	if w.known == nil {
		shared = nil
	}
	if shared != nil {
		var err error
		if key.id, err = shared.ContentsID(ctx); err != nil {
			return written{}, err
		}
		if done, ok := w.known.files[key]; ok {
			return done, nil
		}
	}
	var done written
	var err error
	if done.extents, err = fileExtents(f, e.Attr.Size); err != nil {
		return written{}, err
	}
	if len(done.extents) > maxExtents {
		return written{}, fmt.Errorf("%w: file with %d stretches of data", ErrLimit, len(done.extents))
	}
	for _, x := range done.extents {
		done.data += x.Len
	}
	if done.layout, err = w.data.file(ctx, w.path(e.Name), e, f, done.extents); err != nil {
		return written{}, err
	}
	if shared != nil {
		w.known.add(key, done)
	}
	return done, nil
}

// fileExtents is where f has data within size, adjacent extents joined.
func fileExtents(f File, size int64) ([]Extent, error) {
	given, err := f.Extents()
	if err != nil {
		return nil, err
	}
	out, end := given[:0:0], int64(0)
	for _, x := range given {
		if x.Off < end || x.Len < 0 {
			return nil, fmt.Errorf("extent of %d bytes at %d after one that ends at %d", x.Len, x.Off, end)
		}
		if x.Off >= size {
			break
		}
		x.Len = min(x.Len, size-x.Off)
		if x.Len == 0 {
			continue
		}
		if n := len(out); n > 0 && x.Off == end {
			out[n-1].Len += x.Len
		} else {
			out = append(out, x)
		}
		end = x.Off + x.Len
	}
	return out, nil
}

// inode numbers an inode and emits it.
func (w *writer) inode(ctx context.Context, e *Entry, p pending) (uint32, error) {
	if w.inodes == math.MaxUint32-1 {
		return 0, fmt.Errorf("%w: more than %d inodes", ErrLimit, w.inodes)
	}
	if w.maxInodes > 0 && w.inodes >= w.maxInodes {
		return 0, fmt.Errorf("%w: more than %d", ErrInodes, w.maxInodes)
	}
	for _, t := range []Time{e.Attr.Mtime, e.Attr.Ctime, e.Attr.Btime} {
		if t.Nsec >= 1e9 {
			return 0, w.failed(e.Name, fmt.Errorf("time with %d nanoseconds", t.Nsec))
		}
	}
	r := &p.inode
	var err error
	if r.uid, err = w.ids.add(e.Attr.UID); err == nil {
		if r.gid, err = w.ids.add(e.Attr.GID); err == nil {
			r.xattr, p.foreign, err = w.xattrs.addOf(e)
		}
	}
	if err != nil {
		return 0, w.failed(e.Name, err)
	}
	w.inodes++
	switch {
	case w.renumber && e.Name == "":
		r.attr.Ino = 1
	case w.renumber:
		r.attr.Ino = uint64(w.inodes) + 1
	}
	w.mtime = max(w.mtime, clampTime(e.Attr.Mtime))
	for c, v := range extValues(&r.attr) {
		w.ranges[c].add(v)
	}
	return w.inodes, w.data.emit(ctx, p)
}

// finish spools an inode whose layout is known.
func (w *writer) finish(p *pending) error {
	r := &p.inode
	e := extra{xattrs: p.foreign}
	if r.layout != nil && !slices.Equal(p.extents, r.layout.extents(r.attr.Size, w.blockSize)) {
		e.hasExtents, e.extents = true, p.extents
	}
	if e.hasExtents || len(e.xattrs) > 0 {
		slices.SortFunc(e.xattrs, func(a, b Xattr) int { return cmp.Compare(a.Name, b.Name) })
		r.extra = appendExtra(nil, &e)
		w.extras++
		w.extraBytes += uint64(len(r.extra))
	}
	w.buf = r.append(w.buf[:0])
	_, err := w.records.Write(w.buf)
	return err
}

// clampTime is the nearest time that squashfs can hold.
func clampTime(t Time) uint32 { return uint32(min(max(t.Sec, 0), math.MaxUint32)) }

// readExactly reads len(p) bytes: a file that became shorter since it was listed is an error.
func readExactly(f File, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: the file ends at %d", io.ErrUnexpectedEOF, off+int64(n))
	}
	return err
}
