package squashfs

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"golang.org/x/sync/errgroup"
)

const defaultBlockSize = 128 << 10

// WriteShip writes a compressed image of src for other tools. It is deterministic for equal options (except Workers). w
// gets every byte once and in order, except the superblock, which comes last. After an error, of class ErrLimit if
// squashfs cannot hold the tree, w has a partial image that must be discarded.
func WriteShip(ctx context.Context, w io.WriterAt, src Source, opts ShipOptions) (Info, error) {
	if opts.BlockSize == 0 {
		opts.BlockSize = defaultBlockSize
	}
	if b := opts.BlockSize; b < minBlockSize || b > maxBlockSize || b&(b-1) != 0 {
		return Info{}, fmt.Errorf("block size %d is no power of two from %d to %d", b, minBlockSize, maxBlockSize)
	}
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	comp, err := newCompression(opts.Compression, opts.Level, opts.BlockSize)
	if err != nil {
		return Info{}, err
	}
	wr := newWriter(src, opts.TempDir, opts.Progress)
	wr.home = opts.Home
	wr.known = &knownContents{} // equal files share their contents in any case
	defer wr.spools.close()
	wr.blockSize = opts.BlockSize
	if wr.compressor, err = comp.compressor(); err != nil {
		return Info{}, err
	}
	out := &shipOutput{w: w, off: HeaderSize}
	sb := superblock{compressor: comp.id, flags: shipFlags(opts)}
	if comp.options != nil {
		sb.flags |= flagCompressorOptions
		n := uint16(len(comp.options)) | metadataUncompressed
		if _, err := out.Write(append([]byte{byte(n), byte(n >> 8)}, comp.options...)); err != nil {
			return Info{}, err
		}
	}
	ship, err := newShipData(wr, out, comp, opts)
	if err != nil {
		return Info{}, err
	}
	if err := ship.run(ctx); err != nil {
		return Info{}, err
	}
	err = wr.image(ctx, out, out.off, sb, tableOptions{
		fragments: ship.fragments, export: opts.Exportable, extension: !opts.NoExtension,
		compressExtension: opts.Compression != "none",
	})
	if err != nil {
		return Info{}, err
	}
	return wr.info, nil
}

func shipFlags(opts ShipOptions) uint16 {
	flags := uint16(flagDuplicates)
	if opts.Compression == "none" {
		flags |= flagUncompressedInodes | flagUncompressedData | flagUncompressedFragments |
			flagUncompressedXattrs | flagUncompressedIDs
	}
	if opts.NoFragments {
		flags |= flagNoFragments
	}
	if opts.Exportable {
		flags |= flagExportable
	}
	return flags
}

// shipOutput appends to a WriterAt.
type shipOutput struct {
	w   io.WriterAt
	off uint64
}

func (o *shipOutput) Write(p []byte) (int, error) {
	n, err := o.w.WriteAt(p, int64(o.off))
	o.off += uint64(n)
	return n, err
}

func (o *shipOutput) cut(string, uint64) error { return nil }

func (o *shipOutput) header(p []byte) error {
	_, err := o.w.WriteAt(p, 0)
	return err
}

// shipData compresses contents. The goroutine of the walk reads files and fills jobs; workers compress them; one
// goroutine, the committer, takes everything in the order of the walk and writes it:
//
//	walk ──jobs──▶ workers
//	  └───items──────┴──▶ committer ──▶ image, spool of records
//
// run starts and ends all of them. Fields belong to the walk, except the committer's and the channels.
type shipData struct {
	w           *writer
	noFragments bool
	compressors []compressor // one for each worker

	free  chan *shipJob // bounds memory: all jobs there are
	jobs  chan *shipJob
	items chan shipItem

	tails     *shipJob // the fragment being filled, or nil
	tailIndex uint32   // its index
	scratch   []byte   // of a block
	small     map[[16]byte]tailPos
	large     map[int64][]*shipFile // by size

	out       *shipOutput     // the committer's
	fragments []fragmentEntry // the committer's
}

// tailPos is where a small file is within a fragment.
type tailPos struct{ fragment, offset uint32 }

// shipJob is a block that passes through a worker. The worker owns it between jobs and done.
type shipJob struct {
	src        []byte
	out        []byte
	hash       bool
	zero       bool     // result: only zeros
	compressed bool     // result: out is shorter than src
	sum        [32]byte // result: of src, if hash
	err        error
	done       chan struct{}
}

// shipItem is what the committer does next. The first field that is set determines it.
type shipItem struct {
	job     *shipJob  // write it: a fragment if there is no file
	file    *shipFile // the job is of this file; without a job the file is complete
	hole    int64     // that many bytes of the file are not there; ends at a block or the file's end
	pending *pending  // finish it
}

func newShipData(w *writer, out *shipOutput, comp compression, opts ShipOptions) (*shipData, error) {
	s := &shipData{
		w: w, out: out, noFragments: opts.NoFragments,
		free: make(chan *shipJob, 3*opts.Workers+2), jobs: make(chan *shipJob, opts.Workers),
		items: make(chan shipItem, 256),
		small: map[[16]byte]tailPos{}, large: map[int64][]*shipFile{}, scratch: make([]byte, w.blockSize),
	}
	for range cap(s.free) {
		s.free <- &shipJob{src: make([]byte, 0, w.blockSize), done: make(chan struct{}, 1)}
	}
	for range opts.Workers {
		p, err := comp.compressor()
		if err != nil {
			return nil, err
		}
		s.compressors = append(s.compressors, p)
	}
	w.data = s
	return s, nil
}

// run walks the source and returns when everything is written up to the last byte of data.
func (s *shipData) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, p := range s.compressors {
		g.Go(func() error {
			for j := range s.jobs {
				j.compress(p)
			}
			return nil
		})
	}
	g.Go(func() error { return s.commitAll(ctx) })
	g.Go(func() error {
		defer close(s.items)
		defer close(s.jobs)
		err := s.w.walk(ctx)
		if err == nil {
			err = s.flushTails(ctx)
		}
		return err
	})
	err := g.Wait()
	s.small, s.large, s.scratch, s.free = nil, nil, nil, nil // the second pass needs the memory
	return err
}

// emit implements dataWriter.
func (s *shipData) emit(ctx context.Context, p pending) error {
	return s.send(ctx, shipItem{pending: &p})
}

func (s *shipData) send(ctx context.Context, it shipItem) error {
	select {
	case s.items <- it:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// job waits for a free one.
func (s *shipData) job(ctx context.Context) (*shipJob, error) {
	select {
	case j := <-s.free:
		return j, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// submit sends a filled job to the workers and to its place among the items.
func (s *shipData) submit(ctx context.Context, j *shipJob, file *shipFile) error {
	j.hash = file != nil
	select {
	case s.jobs <- j:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.send(ctx, shipItem{job: j, file: file})
}
