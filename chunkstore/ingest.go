package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/zeebo/blake3"

	"snapfs/chunkstore/internal/cdc"
	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/pack"
	"snapfs/chunkstore/internal/sketch"
	"snapfs/chunkstore/internal/transform"
	"snapfs/internal/lockorder"
)

// Hint describes the next bytes of an ingest; a chunk starts there.
type Hint struct {
	Path string  // sort and prediction key; "" for metadata
	Size int64   // bytes until the next hint, -1 unknown
	Prev []Range // where the previous version of these bytes lies in stored manifests; may be empty
	// InPlace says that Prev is one range, and that the bytes differ from it only where they were overwritten.
	InPlace bool
}

// Range is a part of a stored manifest.
type Range struct {
	Manifest ID
	Off, Len int64
}

// IngestOptions are for NewIngest.
type IngestOptions struct {
	Kind       Kind
	HeaderSize int  // bytes at the start that are given last, by Header; at most 4096
	Background bool // use the better, slower compression policy
	NoSync     bool // do not wait for the disk at commit
	// Most is how many bytes of records it may add; 0 is any number. With more it ends in ErrTooMuch, some time after it
	// has taken them.
	Most int64
}

const (
	pendingMax = 48 << 20 // bytes of chunks without a base that are held back to be sorted into blocks
	pendingMin = 512      // what a chunk counts for at least, as it takes that much memory
	batchMax   = 8192     // chunks that wait for the index before some are written into it
	// chunks that wait for the index before those are written of which the pages are not complete
	appendedMax = 1 << 17
)

// Ingest stores one byte stream. It is used by one goroutine; see pipeline for those that it uses. After an error, and
// always after use, callers must call Abort (a no-op after Commit).
type Ingest struct {
	s     *Store
	ctx   context.Context
	opts  IngestOptions
	parts *transform.Splitter // cuts; everything written goes through it
	cut   *cdc.Chunker
	pipe  pipeline
	path  string // of the part
	order string // sort key of the part, "" until it is needed
	inRun bool   // the bytes are those of an archive or a git object, and may be a file elsewhere
	start int64  // where they start in the part, 0 if not inRun

	moves   bool // re-encodes stored chunks
	repack  bool // does so for the least space
	pred    predictor
	outline outliner          // of the part
	used    *roaring64.Bitmap // chunks found or written; guarded by s.pins.mu
	first   uint64            // numbers of new chunks start here; immutable
	list    chunkList
	sum     *blake3.Hasher // of chunk hashes
	err     error          // the first error
	ended   bool
	kept    bool // by Keep

	// chunks of this ingest that the index does not have; like all that has no guard, of the last stage of pipe, or of
	// the caller once that is drained
	unwritten map[hash]*fresh

	added        uint64   // prefixes
	pending      []*fresh // wait to be compressed into blocks
	pendingBytes int64
	flushAt      int // appended chunks at which some are written into the index

	recalls    int          // how many outlines the caller expects to recall; immutable once one is
	readHashes sync.Once    // for numbers
	numbers    *hashNumbers // of the index; empty if it is not of use

	wg    sync.WaitGroup // encoders under way
	slots chan struct{}  // one token per encoder
	holds pack.Holds     // packs with records of this ingest
	ahead uint64         // transactions that wrote chunks into the index before the commit

	stored atomic.Int64 // bytes of records

	mu        lockorder.Mutex[lockorder.Ingest]
	appended  []*fresh          // written to packs, not to the index; guarded by mu
	rejected  []*fresh          // chunks whose delta did not pay; guarded by mu
	fail      error             // of encoders; guarded by mu
	unindexed map[uint64]*fresh // chunks of this ingest by number, until the index has them; guarded by mu
}

// fresh is a chunk that the store did not have.
type fresh struct {
	num   uint64
	hash  hash
	data  []byte   // nil once it is written; cleared under Ingest.mu
	size  int      // bytes, set when data is cleared
	order string   // sort key
	off   int64    // in its part
	stray bool     // of an archive or a git object: order and off are not those of the file that has it, if there is one
	waits bool     // in Ingest.pending; used by the ingest's goroutine, as stray
	bases []uint64 // with gen changed under Ingest.mu once others may know the chunk
	gen   int
	// extra chunks are prefixes: no manifest names them
	extra  bool
	prefix *shared // of the block; nil: none. Set before the block is encoded
	// A chunk that is re-encoded may have deltas that depend on it: its generation must not grow.
	bound    bool
	maxGen   int // valid if bound
	sk       sketch.Sketch
	sketched bool     // sk is valid
	looked   bool     // sketched is
	rejected bool     // it waits in Ingest.rejected, or did; guarded by Ingest.mu
	rec      *located // once it is written; guarded by Ingest.mu
}

// NewIngest starts an ingest. Any number may run concurrently.
func (s *Store) NewIngest(ctx context.Context, opts IngestOptions) (*Ingest, error) {
	if opts.HeaderSize < 0 || opts.HeaderSize > maxHeader {
		return nil, fmt.Errorf("header of %d bytes", opts.HeaderSize)
	}
	if s.opts.ReadOnly {
		return nil, ErrReadOnly
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	s.loadSketches()
	in := &Ingest{
		s: s, ctx: ctx, opts: opts,
		used:      roaring64.New(),
		sum:       blake3.New(),
		unwritten: map[hash]*fresh{},
		unindexed: map[uint64]*fresh{},
		slots:     make(chan struct{}, opts.workers()),
		flushAt:   2 * batchMax,
	}
	in.list.Kind = opts.Kind
	in.list.Size = int64(opts.HeaderSize)
	in.list.stored = in.list.Size
	in.pipe.init(in)
	in.cut = cdc.New(func(data []byte) error { return in.pipe.add(step{kind: stepChunk}, data) })
	in.parts = transform.NewSplitter(ctx, s.inflating, s.packedSize, in.plain, in.inflated)
	in.pred.in = in
	s.numMu.Lock()
	in.first = s.nextNum
	s.numMu.Unlock()
	s.pins.addIngest(in)
	return in, nil
}

// packedSize is the length of the frame of up to 1 MiB.
func (s *Store) packedSize(b []byte) int {
	sc := pack.TakeScratch()
	defer sc.Release()
	sc.Frame = s.codec.Encode(sc.Frame[:0], b, nil, frame.Quick)
	return len(sc.Frame)
}

// workers is how many encoders run beside the reader of an ingest. In the background no caller waits for an ingest, so
// it leaves most of the processors to others. Threads of low priority would be worse: the runtime's pauses wait for
// every thread.
func (o IngestOptions) workers() int {
	if o.Background {
		return max(1, runtime.GOMAXPROCS(0)/4)
	}
	return runtime.GOMAXPROCS(0) + 1
}

var errEnded = errors.New("ingest has ended")

func (in *Ingest) check() error {
	if in.ended {
		return errEnded
	}
	if in.err == nil {
		in.err = in.ctx.Err()
	}
	return in.err
}

// Hint starts a chunk and describes what follows.
func (in *Ingest) Hint(h Hint) error {
	if err := in.check(); err != nil {
		return err
	}
	if in.err = in.endPart(); in.err != nil {
		return in.err
	}
	if in.err = in.pipe.add(step{kind: stepBegin, hint: h}, nil); in.err != nil {
		return in.err
	}
	in.err = in.cut.Begin(h.Size)
	size := h.Size
	if h.Path == "" {
		size = -1 // metadata has no sections
	}
	in.parts.Begin(size)
	return in.err
}

// endPart forwards what is held back of the current part.
func (in *Ingest) endPart() error {
	if err := in.parts.Flush(); err != nil {
		return err
	}
	return in.cut.Flush()
}

// plain takes bytes that are stored unchanged.
func (in *Ingest) plain(p []byte) error {
	if err := in.ctx.Err(); err != nil {
		return err // what is inflated meanwhile may take long
	}
	_, err := in.cut.Write(p)
	return err
}

// inflated takes bytes of the stream that are stored as the concatenated parts. Each is cut like a part of its own, so
// that the same bytes are found where they are a file.
func (in *Ingest) inflated(run transform.Run, parts [][]byte) error {
	if err := in.ctx.Err(); err != nil {
		return err
	}
	if err := in.cut.Flush(); err != nil {
		return err
	}
	r := transformRun{codec: run.Codec, len: run.Len, pieces: run.Pieces}
	if err := in.pipe.add(step{kind: stepEnter, stray: !run.Debug}, nil); err != nil {
		return err
	}
	for _, p := range parts {
		if err := in.pipe.add(step{kind: stepInner}, nil); err != nil {
			return err
		}
		if err := in.cut.Begin(int64(len(p))); err != nil {
			return err
		}
		if _, err := in.cut.Write(p); err != nil {
			return err
		}
		if err := in.cut.Flush(); err != nil {
			return err
		}
		r.inner += int64(len(p))
	}
	return in.pipe.add(step{kind: stepLeave, run: r}, nil)
}

// Write takes the next bytes.
func (in *Ingest) Write(p []byte) (int, error) {
	if err := in.check(); err != nil {
		return 0, err
	}
	n, err := in.parts.Write(p)
	in.err = err
	return n, err
}

// Header gives the first HeaderSize bytes.
func (in *Ingest) Header(p []byte) error {
	if err := in.check(); err != nil {
		return err
	}
	if len(p) != in.opts.HeaderSize {
		return fmt.Errorf("header of %d bytes instead of %d", len(p), in.opts.HeaderSize)
	}
	in.list.header = slices.Clone(p)
	return nil
}

// chunk takes the next chunk.
func (in *Ingest) chunk(data []byte, h hash) error {
	_, _ = in.sum.Write(h[:]) // cannot fail
	num, found, err := in.find(h)
	if err != nil {
		return err
	}
	if found {
		in.adopt(h)
		in.pred.seen(num, len(data))
		in.list.add(num, len(data))
		return nil
	}
	if num, err = in.s.numbers(1); err != nil {
		return err
	}
	in.s.pins.use(in, num)
	if in.order == "" {
		in.order = orderKey(in.path)
	}
	f := &fresh{num: num, hash: h, data: slices.Clone(data), order: in.order, off: in.pred.at - in.start, stray: in.inRun}
	in.unwritten[h] = f
	in.list.New += int64(len(data))
	if err := in.pred.bases(f); err != nil {
		return err
	}
	in.pred.missed(len(data))
	in.list.add(num, len(data))
	return in.dispatch(f)
}

// adopt gives a chunk that waits to be encoded, and was found in an archive, the place of the file that has it too.
func (in *Ingest) adopt(h hash) {
	f := in.unwritten[h]
	if f == nil || !f.waits || !f.stray || in.inRun || in.path == "" {
		return
	}
	if in.order == "" {
		in.order = orderKey(in.path)
	}
	f.stray, f.order, f.off = false, in.order, in.pred.at
}

// find looks for a chunk in this ingest and in the store, and pins it.
func (in *Ingest) find(h hash) (uint64, bool, error) {
	if f := in.unwritten[h]; f != nil {
		return f.num, true, nil
	}
	num, err := in.s.lookup(h)
	if errors.Is(err, ErrNotFound) {
		in.s.missedOne()
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	if !in.s.pins.use(in, num) {
		return 0, false, nil
	}
	// Hashes outlive their chunks for some time.
	_, _, err = in.s.locate(num)
	if errors.Is(err, errNoChunk) {
		return 0, false, nil
	}
	return num, err == nil, err
}

// Abort drops what was taken and returns its space. If some of it is in the index already, that takes a collection.
func (in *Ingest) Abort() {
	in.end(false)
}

func (in *Ingest) end(committed bool) {
	if in.ended {
		return
	}
	in.ended = true
	if !committed {
		in.setFailed(errEnded) // what waits is dropped
	}
	in.pipe.stop()
	in.wg.Wait()
	in.s.pins.dropIngest(in)
	in.s.dropPacks(&in.holds)
	if committed || in.ahead == 0 {
		in.s.leave()
		return
	}
	err := in.s.update(func(t *writeTxn) error {
		t.state.ahead -= in.ahead
		t.state.dropped++
		return nil
	})
	in.s.leave()
	if err == nil && !in.kept {
		_, err = in.s.GC(context.WithoutCancel(in.ctx), nil)
	}
	if err != nil && !errors.Is(err, ErrClosed) {
		in.s.log.Warn("what an ingest that was given up has stored stays until the next collection", "error", err)
	}
}

// dropPacks releases a writer's holds.
func (s *Store) dropPacks(by *pack.Holds) {
	if s.packs.Drop(by, s.log) {
		s.blocks.clear() // other records will lie at the same locations
	}
}
