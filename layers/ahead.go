package layers

import (
	"context"
	"io"
	"runtime"
	"slices"
	"sync"

	"snapfs/internal/fairshare"
	"snapfs/squashfs"
)

// Limits of reading ahead.
const (
	aheadSteps = 4096     // directories listed and entries read that wait to be taken
	aheadBytes = 64 << 20 // contents that wait to be taken, in the process: one import alone has half of them
	aheadFile  = 2 << 20  // the longest file that is read as a whole; of longer ones the host reads ahead
	aheadLeast = 4        // readers, however few processors there are: most of the time they wait for a disk
)

// aheadPool are the bytes that all imports read ahead. Each has room for one file besides.
var aheadPool = fairshare.New(aheadBytes)

// readers is how many files are read at a time.
func readers() int { return max(aheadLeast, runtime.GOMAXPROCS(0)) }

// ahead presents a source that another goroutine walks in advance, in the order in which a writer of images asks: each
// directory with its names in byte order, what is in a subdirectory before the name behind it. Files are read in
// parallel. What is asked for in another order is asked of the source itself. The source must take calls from several
// goroutines, and the listings that it returns must not change.
type ahead struct {
	src    squashfs.Source
	end    context.CancelFunc
	ended  sync.WaitGroup
	steps  chan aheadStep
	next   *aheadStep        // taken and not asked for yet
	last   *aheadRead        // of the entry given out last, until it is opened
	budget *fairshare.Member // bytes
	begun  chan *aheadRead   // to a reader that waits
	spare  int               // readers that may still be started; of the walk
}

// aheadStep is a call of Names, or of Entry if entry is set or a name given, with its result.
type aheadStep struct {
	dir   *squashfs.Entry
	name  string // "": Names
	names []string
	entry *squashfs.Entry
	err   error
	read  *aheadRead // nil: the contents are not read in advance
}

// aheadRead is the contents of a file.
type aheadRead struct {
	file    *squashfs.Entry
	done    chan struct{} // closed; what follows is valid then
	extents []squashfs.Extent
	data    []byte
	err     error  // of what is behind data; io.EOF at the end
	failed  error  // of opening
	give    func() // returns its share of the budget

	copier squashfs.Copier // that of the file; nil: it is none
}

// readAhead begins to walk a source when its root is asked for. close must be called after use.
func readAhead(src squashfs.Source) *ahead {
	return &ahead{
		src: src, steps: make(chan aheadStep, aheadSteps), budget: aheadPool.Join(aheadFile),
		begun: make(chan *aheadRead), spare: readers(),
	}
}

// close ends the walk.
func (a *ahead) close() {
	if a.end != nil {
		a.end()
	}
	a.ended.Wait()
	a.budget.Leave() // what was read and not taken is not used any more
}

func (a *ahead) Root(ctx context.Context) (*squashfs.Entry, error) {
	root, err := a.src.Root(ctx)
	if err != nil || a.end != nil {
		return root, err
	}
	ctx, a.end = context.WithCancel(ctx)
	a.ended.Go(func() {
		defer close(a.steps)
		defer close(a.begun)
		a.walk(ctx, root)
	})
	return root, nil
}

// walk does all that the writer will ask for, until something fails.
func (a *ahead) walk(ctx context.Context, root *squashfs.Entry) {
	type level struct {
		dir   *squashfs.Entry
		names []string // still to come
	}
	linked := map[squashfs.InodeID]bool{} // files with several names that were met
	var stack []level
	enter := func(dir *squashfs.Entry) bool {
		names, err := a.src.Names(ctx, dir)
		slices.Sort(names)
		stack = append(stack, level{dir, names})
		return a.send(ctx, aheadStep{dir: dir, names: slices.Clone(names), err: err})
	}
	if !enter(root) {
		return
	}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if len(top.names) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		s := aheadStep{dir: top.dir, name: top.names[0]}
		top.names = top.names[1:]
		s.entry, s.err = a.src.Entry(ctx, s.dir, s.name)
		if s.err == nil && s.entry != nil && isReg(s.entry.Attr.Mode) && !seen(linked, s.entry) {
			if s.read = a.begin(ctx, s.entry); ctx.Err() != nil {
				return
			}
		}
		if !a.send(ctx, s) || s.entry != nil && isDir(s.entry.Attr.Mode) && !enter(s.entry) {
			return
		}
	}
}

// seen reports whether an entry is another name of a file that was met before.
func seen(linked map[squashfs.InodeID]bool, e *squashfs.Entry) bool {
	if e.Attr.Nlink < 2 {
		return false
	}
	id := e.Inode
	if id == (squashfs.InodeID{}) {
		id.Inode = e.Attr.Ino
	}
	before := linked[id]
	linked[id] = true
	return before
}

// send hands a step over. It reports whether the walk goes on.
func (a *ahead) send(ctx context.Context, s aheadStep) bool {
	select {
	case a.steps <- s:
		return s.err == nil
	case <-ctx.Done():
		return false
	}
}

// begin begins to read a file, if it is short. It waits while much is read that is not taken yet.
func (a *ahead) begin(ctx context.Context, e *squashfs.Entry) *aheadRead {
	size := e.Attr.Size
	if size <= 0 || size > aheadFile {
		return nil
	}
	if err := a.budget.Take(ctx, size); err != nil {
		return nil // ctx has ended
	}
	r := &aheadRead{file: e, done: make(chan struct{})}
	r.give = sync.OnceFunc(func() { a.budget.Give(size) })
	if a.spare > 0 {
		select {
		case a.begun <- r:
			return r
		default:
			a.spare--
			a.ended.Go(func() { a.read(ctx, r) })
			return r
		}
	}
	select {
	case a.begun <- r:
		return r
	case <-ctx.Done():
		return nil
	}
}

// read is a reader: it reads files until the walk ends.
func (a *ahead) read(ctx context.Context, r *aheadRead) {
	for ok := true; ok; r, ok = <-a.begun {
		r.load(ctx, a.src)
		close(r.done)
	}
}

// load reads the file.
func (r *aheadRead) load(ctx context.Context, src squashfs.Source) {
	f, err := src.Open(ctx, r.file)
	if err != nil {
		r.failed = err
		return
	}
	r.copier, _ = f.(squashfs.Copier)
	_, known := f.(*knownFile)
	if r.extents, r.failed = f.Extents(); known {
		r.give()
	} else if r.failed == nil {
		data := make([]byte, r.file.Attr.Size)
		n, err := f.ReadAt(data, 0)
		r.data, r.err = data[:n], err
		if err == nil {
			r.err = io.EOF
		}
	}
	if err := f.Close(); r.failed == nil {
		r.failed = err
	}
}

// take returns the result of a call if that is the next one of the walk.
func (a *ahead) take(ctx context.Context, dir *squashfs.Entry, name string) (aheadStep, bool, error) {
	if a.last != nil { // it was not opened; the walk may wait for its share
		a.last.give()
	}
	if a.next == nil {
		select {
		case s, ok := <-a.steps:
			if !ok {
				return aheadStep{}, false, ctx.Err()
			}
			a.next = &s
		case <-ctx.Done():
			return aheadStep{}, false, ctx.Err()
		}
	}
	s := *a.next
	if s.dir != dir || s.name != name {
		return aheadStep{}, false, nil
	}
	a.next = nil
	a.last = s.read
	return s, true, nil
}

func (a *ahead) Names(ctx context.Context, dir *squashfs.Entry) ([]string, error) {
	s, ok, err := a.take(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	if !ok {
		return a.src.Names(ctx, dir)
	}
	return s.names, s.err
}

func (a *ahead) Entry(ctx context.Context, dir *squashfs.Entry, name string) (*squashfs.Entry, error) {
	s, ok, err := a.take(ctx, dir, name)
	if err != nil {
		return nil, err
	}
	if !ok {
		return a.src.Entry(ctx, dir, name)
	}
	return s.entry, s.err
}

func (a *ahead) Open(ctx context.Context, file *squashfs.Entry) (squashfs.File, error) {
	r := a.last
	if r == nil || r.file != file {
		return a.src.Open(ctx, file)
	}
	a.last = nil
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.failed != nil {
		return nil, r.failed
	}
	return r, nil
}

// ReadAt implements squashfs.File.
func (r *aheadRead) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(r.data)) {
		return 0, r.err
	}
	n := copy(p, r.data[off:])
	if n < len(p) {
		return n, r.err
	}
	return n, nil
}

// Extents implements squashfs.File.
func (r *aheadRead) Extents() ([]squashfs.Extent, error) { return r.extents, nil }

// CopyTo implements squashfs.Copier.
func (r *aheadRead) CopyTo(to squashfs.Sink, off, n int64) (int64, bool, error) {
	if r.copier == nil {
		return n, false, nil
	}
	return r.copier.CopyTo(to, off, n)
}

// Close implements squashfs.File.
func (r *aheadRead) Close() error {
	r.data = nil
	r.give()
	return nil
}

var _ squashfs.Copier = (*aheadRead)(nil)
