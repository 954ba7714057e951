package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// sourceWalk is what a source layer knows of its import, guarded by sourceStore.mu. What was seen of a file, but not
// fixed, may be newer than what the import has taken of it, or have other contents while they were read. The import then
// begins anew, and fixes these files before it takes them. What has not changed is found in the store again.
type sourceWalk struct {
	pass  uint32             // counts the walks through the tree
	round int                // counts those of the present call of StoreSource
	again map[uint64]bool    // numbers of files that the next pass fixes
	older map[uint64][]int64 // sizes of the last versions of files that are not fixed
	ended bool               // the image is made: what is not fixed stays as it was taken
	unset map[uint64]int     // how often the import has left a file for later that changed all the time
	// Of the pass:
	unread Unreadable
	repeat string // a path, "" for none, that was something else right then
	anew   bool   // it has a name as gone that is there again
	// Names that are gone, and directories that were gone when they were to be listed, which have no name here: the pass
	// that has them so.
	lost map[sourcePlace]uint32
	// What the image has of files that are not fixed and were told anew since.
	stored map[uint64]sourceFile
}

// maxOlder is how many versions of a file are remembered.
const maxOlder = 16

// againLocked notes that a file that was taken in a pass has changed.
func (w *sourceWalk) againLocked(number uint64, pass uint32) {
	if pass == 0 || pass != w.pass || w.ended {
		return
	}
	if w.again == nil {
		w.again = map[uint64]bool{}
	}
	w.again[number] = true
}

// loseLocked notes that a name is gone.
func (w *sourceWalk) loseLocked(at sourcePlace) {
	if w.lost == nil {
		w.lost = map[sourcePlace]uint32{}
	}
	w.lost[at] = 0
}

// olderLocked notes that a file has another version.
func (w *sourceWalk) olderLocked(number uint64, f sourceFile) {
	if w.older == nil {
		w.older = map[uint64][]int64{}
	}
	list := append(w.older[number], f.size)
	w.older[number] = list[max(0, len(list)-maxOlder):]
}

// toldLocked notes what was told of a file before, once the image is made.
func (w *sourceWalk) toldLocked(number uint64, was sourceFile) {
	if !w.ended {
		return
	}
	if w.stored == nil {
		w.stored = map[uint64]sourceFile{}
	}
	if _, ok := w.stored[number]; !ok {
		w.stored[number] = was
	}
}

// storedLocked gives what the image has of a file that is not fixed. mu is held.
func (s *sourceStore) storedLocked(number uint64) sourceFile {
	if f, ok := s.walk.stored[number]; ok {
		return f
	}
	return s.files[number]
}

// errAgain says that the import must begin anew.
var errAgain = errors.New("what was seen of the directory is newer than what was stored")

// An import is begun anew so many times, after growing pauses. What it has fixed by then stays so.
const (
	mostPasses = 16
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// A file that changes all the time is left for a later pass so often, each of which copies it so many times.
const (
	mostUnset  = 3
	unsetTries = 2
)

// StoreSource stores what a layer of OpenSource shows as a base image, as StoreTree would the directory, and commits
// together with the records fn writes. The rights are the layer's own, Part is not for it. It may be cancelled, and
// called again. Then the image is to come in the layer's place by Overlay.Replace: until then what has changed since it
// was stored gives unix.ESTALE to the first who reads it. Only one call at a time. What may not be read is an error of
// type *Unreadable, once all else was read: what Seen has noted by then is right.
func StoreSource(
	ctx context.Context, s *chunkstore.Store, l *Lower, opts StoreOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	src := l.source
	if src == nil || opts.Part != nil {
		return chunkstore.Manifest{}, fmt.Errorf("store source %s: %w", l.key, unix.EINVAL)
	}
	for pass := range mostPasses {
		if err := src.pauseBefore(ctx, pass); err != nil {
			return chunkstore.Manifest{}, err
		}
		src.setRound(pass)
		m, err := src.storePass(ctx, s, l, opts, fn)
		if errors.Is(err, errNoted) && opts.Seen != nil {
			opts.Seen = nil
		} else if !errors.Is(err, errAgain) {
			return m, err
		}
	}
	return chunkstore.Manifest{}, fmt.Errorf("store source %s: %w", l.key, src.unsettled())
}

// pauseBefore waits before a pass, the first of which is 0.
func (s *sourceStore) pauseBefore(ctx context.Context, pass int) error {
	if pass == 0 || s.hasty {
		return ctx.Err()
	}
	return sleep(ctx, min(firstPause<<(pass-1), lastPause))
}

func (s *sourceStore) setRound(round int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.walk.round = round
}

// storePass is one walk.
func (s *sourceStore) storePass(
	ctx context.Context, to *chunkstore.Store, l *Lower, opts StoreOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	t := &sourceTree{s: s, l: &layer{lower: l}, fix: s.beginPass()}
	defer descriptors.purge(func(k fdKey) bool { return k.o.layer == t.l })
	k := &sink{}
	s.host.recaller = s.host.newRecaller(opts, k)
	src := readAhead(t)
	defer src.close()
	opts.written = func() error { return s.endPass(ctx) }
	m, err := storeSource(ctx, to, src, k, opts, false, fn)
	if err != nil {
		s.mu.Lock()
		s.walk.ended, s.walk.stored = false, nil
		s.lost.Store(nil)
		s.mu.Unlock()
	}
	return m, err
}

// beginPass gives the files that the pass must fix.
func (s *sourceStore) beginPass() map[uint64]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.walk
	fix := w.again
	w.pass++
	w.again, w.unread, w.repeat, w.anew = nil, Unreadable{}, "", false
	return fix
}

// endPass has the layer show nothing else than the image from then on. errAgain: it has shown more.
func (s *sourceStore) endPass(ctx context.Context) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.walk
	if err := s.there(); err != nil {
		return err
	}
	if w.unread.Count > 0 {
		unread := w.unread
		slices.Sort(unread.Paths)
		return &unread
	}
	if len(w.again) > 0 || w.repeat != "" || w.anew {
		return errAgain
	}
	w.ended, w.unset = true, nil
	n, some := s.lostLocked()
	s.lost.Store(&lostNames{n, some})
	return nil
}

// sourceTree presents a source layer as the source of its image.
type sourceTree struct {
	s   *sourceStore
	l   *layer
	fix map[uint64]bool // immutable
}

// Root implements squashfs.Source.
func (t *sourceTree) Root(context.Context) (*squashfs.Entry, error) {
	seen, _ := t.s.seenAs(rootIno)
	return t.entry("", rootPart(t.l), seen, nil)
}

// Names implements squashfs.Source. What is gone is among them: it may be there again.
func (t *sourceTree) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	o := dir.Handle.(*sourceNode).o
	names, err := t.namesIn(o)
	return names, cmp.Or(ctx.Err(), t.passOver(o, "", err))
}

func (t *sourceTree) namesIn(dir *part) ([]string, error) {
	d, err := t.s.dirOf(dir)
	if err != nil {
		return nil, err
	}
	list, err := t.s.namesIn(d)
	if err != nil {
		return nil, err
	}
	if list == nil && !t.s.isListed(d) && !t.s.passLost(sourcePlace{dir: d}) {
		return nil, errAgain // it was gone for a moment only
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].name
	}
	return names, nil
}

// sourceNode is what an entry is in the layer.
type sourceNode struct {
	o    *part
	d    *sourceDir
	e    *sourceName
	sx   unix.Statx_t   // of a file that is not fixed
	host *viewNode      // the same on the host
	as   squashfs.Entry // the same, with the number of the host
}

// Entry implements squashfs.Source.
func (t *sourceTree) Entry(_ context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	o := dir.Handle.(*sourceNode).o
	e, err := t.entryIn(o, name)
	if errors.Is(err, unix.ENOENT) {
		e, err = nil, t.gone(o, name)
	}
	return e, t.passOver(o, name, err)
}

// gone returns nil if a name is known to be gone. errAgain: it was so for a moment only.
func (t *sourceTree) gone(dir *part, name string) error {
	d, err := t.s.dirOf(dir)
	if err != nil {
		return err
	}
	e, err := t.s.entryOf(d, name)
	if err != nil {
		return err
	}
	if _, _, gone := e.get(); !gone || !t.s.passLost(sourcePlace{d, name}) {
		return errAgain
	}
	return nil
}

func (t *sourceTree) entryIn(dir *part, name string) (*squashfs.Entry, error) {
	d, err := t.s.dirOf(dir)
	if err != nil {
		return nil, err
	}
	n, err := t.s.entryOf(d, name)
	if err != nil {
		return nil, err
	}
	seen, err := t.s.observe(d, n)
	if err != nil {
		return nil, err
	}
	o := dir.child(name, found{attr: seen.attr, host: seen.attr.Ino, ref: seen.ref()})
	switch {
	case seen.fixed != nil:
		return t.entry(name, o, seen, nil)
	case t.fix[o.ino]:
		return t.steady(n, o)
	}
	return t.live(d, n, o)
}

// steady fixes a file that changes, and describes it.
func (t *sourceTree) steady(e *sourceName, o *part) (*squashfs.Entry, error) {
	o.ref.Store(notes) // any version
	s := t.s
	s.mu.Lock()
	how := care{tries: fixTries}
	if s.walk.unset[o.ino] < mostUnset {
		how = care{tries: unsetTries, exact: true}
	}
	s.mu.Unlock()
	switch err := s.fixWith(o, how); {
	case errors.Is(err, errUnsteady):
		s.leave(o)
		return nil, nil
	case errors.Is(err, unix.ESTALE):
		return nil, errAgain // it has become something else
	case err != nil:
		return nil, err
	}
	seen, _ := s.seenAs(o.ino)
	return t.entry(e.name, o, seen, nil)
}

// entry describes what is fixed.
func (t *sourceTree) entry(name string, o *part, seen observed, node *sourceNode) (*squashfs.Entry, error) {
	if node == nil {
		node = &sourceNode{o: o}
	}
	more, err := t.s.more(seen.fixed)
	if err != nil {
		return nil, err
	}
	a := imageOf(seen.attr)
	if isWhiteoutDevice(a.Mode, a.Rdev) {
		a.Mode = a.Mode&^unix.S_IFMT | unix.S_IFREG
	}
	return &squashfs.Entry{
		Name: name, Attr: a, Inode: squashfs.InodeID{Layer: 1, Inode: a.Ino}, Xattrs: more.xattrs, Handle: node,
		Target: more.target,
	}, nil
}

// live takes a file that may change.
func (t *sourceTree) live(d *sourceDir, e *sourceName, o *part) (*squashfs.Entry, error) {
	s := t.s
	at := s.place(o.ino, d, e)
	now := coarseNow()
	sx, facts, err := s.look(at.dir, at.name, true)
	if err != nil {
		return nil, err
	}
	if isYoung(&sx, now) {
		return t.steady(e, o)
	}
	facts.attr.Ino = o.ino
	s.mu.Lock()
	if x := s.fixed[o.ino]; x != nil {
		s.mu.Unlock()
		seen, _ := s.seenAs(o.ino)
		return t.entry(e.name, o, seen, nil)
	}
	number, typ, again := e.get()
	if again = again || number != o.ino; !again {
		again, err = s.reboundLocked(d, e, number, typ, &sx, &facts.attr)
	}
	if again || err != nil {
		s.mu.Unlock()
		return nil, cmp.Or(err, errAgain) // it changes right now
	}
	f := s.tellLocked(d, e.name, number, &sx, &facts.attr)
	f.pass = s.walk.pass
	s.files[number] = f
	s.mu.Unlock()
	node := &sourceNode{o: o, d: d, e: e, sx: sx}
	node.host = &viewNode{parts: []*part{{layer: s.host.layer, parent: at.dir.at, name: at.name, host: sx.Ino}}}
	out, err := t.entry(e.name, o, observed{attr: facts.attr, fixed: facts}, node)
	if err != nil {
		return nil, err
	}
	node.as = *out
	node.as.Name, node.as.Attr.Ino, node.as.Handle = at.name, sx.Ino, node.host
	if s.host.recaller != nil {
		a := hostAttr(&sx)
		node.host.seen = s.host.recaller.asListed(&sx, &a)
	}
	return out, nil
}

// Open implements squashfs.Source.
func (t *sourceTree) Open(ctx context.Context, file *squashfs.Entry) (squashfs.File, error) {
	n := file.Handle.(*sourceNode)
	if n.host == nil {
		c, err := t.s.open(n.o)
		descriptors.drop(n.o) // it is read once
		return c, err
	}
	f, err := t.s.host.source().Open(ctx, &n.as)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		t.changed(n)
		return emptyFile{}, nil
	}
	if err := t.passOver(n.o, "", err); err != nil {
		return nil, err
	}
	if err != nil {
		return emptyFile{}, nil
	}
	live := &liveFile{File: f, t: t, n: n}
	if c, ok := f.(squashfs.Copier); ok {
		return &liveCopier{live, c}, nil
	}
	return live, nil
}

// changed notes that a file has changed since it was listed: the next pass takes it, whatever this one has of it.
func (t *sourceTree) changed(n *sourceNode) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.s.changedLocked(n.d, n.e.name)
	t.s.walk.againLocked(n.o.ino, t.s.walk.pass)
}

// liveFile is a file that may change while it is read.
type liveFile struct {
	squashfs.File
	t *sourceTree
	n *sourceNode
}

// ReadAt implements squashfs.File. What has become shorter ends in zeros.
func (f *liveFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if size := f.n.as.Attr.Size; off+int64(n) < size && n < len(p) && (errors.Is(err, errShrunk) || errors.Is(err, io.EOF)) {
		f.t.changed(f.n)
		end := int(min(int64(len(p)), size-off))
		clear(p[n:end])
		return end, nil
	}
	return n, err
}

// Close implements squashfs.File. It finds out whether the file has changed meanwhile.
func (f *liveFile) Close() error {
	err := f.File.Close()
	if _, known := f.File.(*knownFile); known {
		return err
	}
	s := f.t.s
	at := f.n.host.parts[0]
	lerr := s.do(func() error {
		p, h, err := s.host.store.at(at)
		if err != nil {
			return err
		}
		defer h.release()
		var sx unix.Statx_t
		if _, err := s.host.stat(p, &sx); err != nil {
			return err
		}
		if stampOf(&sx) != stampOf(&f.n.sx) {
			return errAgain
		}
		return nil
	})
	if lerr != nil {
		f.t.changed(f.n)
	}
	return err
}

// liveCopier is a liveFile of which the sink may have the contents.
type liveCopier struct {
	*liveFile
	c squashfs.Copier
}

// CopyTo implements squashfs.Copier.
func (f *liveCopier) CopyTo(to squashfs.Sink, off, n int64) (int64, bool, error) {
	return f.c.CopyTo(to, off, n)
}
