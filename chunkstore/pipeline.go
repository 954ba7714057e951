package chunkstore

import (
	"runtime"
	"slices"
	"sync"

	"snapfs/internal/fairshare"
)

// An ingest that a caller waits for works in three stages, so that one processor does not do it all:
//
//	caller: cuts ──▶ batches ──▶ goroutines: hash chunks ──▶ one goroutine: looks up, predicts, numbers ──▶ encoders
//
// The last stage takes batches in the order of the stream, so the result does not depend on the number of processors.
// An ingest in the background, and what fits into the first batch, is done by the caller alone. How many batches are
// under way is bounded for all ingests of the process together.

// batchBytes is how many bytes of chunks are hashed by one goroutine, and batchSteps how many steps.
const (
	batchBytes = 1 << 20
	batchSteps = 1024
)

// batchReserve is how many batches an ingest has in any case: the one that is filled, and the one that the last stage
// works on.
const batchReserve = 2

// batchPool are the batches of all ingests. One alone has half of them, which keeps all processors busy.
var batchPool = sync.OnceValue(func() *fairshare.Pool { return fairshare.New(int64(2 * (runtime.GOMAXPROCS(0) + 1))) })

// freeBatches are the batches that nobody uses.
var freeBatches sync.Pool // of *batch

// stepKind says what a step does.
type stepKind uint8

const (
	stepChunk   stepKind = iota
	stepBegin            // a part
	stepEnter            // a transform run
	stepInner            // the next part in it
	stepLeave            // a transform run
	stepKnown            // a chunk that the store has
	stepOutline          // of the part an outline is wanted
)

// step is what the last stage does next.
type step struct {
	kind stepKind
	off  int // of the chunk in the batch, and its length
	len  int
	num  uint64       // of a stepKnown: the chunk's
	hash hash         // of the chunk, once the batch is hashed
	hint Hint         // of the part
	run  transformRun // of a stepLeave; where it lies is not known
	// stray says that the run of a stepEnter is not a debug section: it may be a file elsewhere.
	stray    bool
	outlined func(outline []byte) // of a stepOutline
}

// batch is a row of steps, with the bytes of their chunks.
type batch struct {
	steps  []step
	data   []byte
	hashed chan struct{} // closed
}

// pipeline is the stages of an ingest. All but what the goroutines do belongs to the caller.
type pipeline struct {
	in    *Ingest
	alone bool // the caller does it all
	now   *batch
	mine  *fairshare.Member // batches of the pool

	running bool
	ordered chan *batch    // to the last stage
	stages  sync.WaitGroup // the last stage, and hashing
	left    sync.WaitGroup // batches
}

func (p *pipeline) init(in *Ingest) {
	p.in = in
	p.mine = batchPool().Join(batchReserve)
	p.alone = in.opts.Background || runtime.GOMAXPROCS(0) == 1
}

// add appends a step. chunk is that of a stepChunk; it is copied.
func (p *pipeline) add(s step, chunk []byte) error {
	b := p.now
	if b == nil {
		var err error
		if b, err = p.take(); err != nil {
			return err
		}
		p.now = b
	}
	if s.kind == stepChunk {
		s.off, s.len = len(b.data), len(chunk)
		b.data = append(b.data, chunk...)
	}
	b.steps = append(b.steps, s)
	if len(b.data) < batchBytes && len(b.steps) < batchSteps {
		return nil
	}
	if p.alone {
		return p.drain()
	}
	if !p.running {
		p.start()
	}
	p.now = nil
	b.hashed = make(chan struct{})
	p.left.Add(1)
	p.stages.Go(func() {
		b.hash()
		close(b.hashed)
	})
	p.ordered <- b // waits while as many batches are under way as it holds
	return p.in.failed()
}

// take gives an empty batch. It waits while those of this ingest, or of the process, are under way.
func (p *pipeline) take() (*batch, error) {
	if err := p.mine.Take(p.in.ctx, 1); err != nil {
		return nil, err
	}
	b, _ := freeBatches.Get().(*batch)
	if b == nil {
		b = &batch{}
	}
	b.steps, b.data = b.steps[:0], b.data[:0]
	return b, nil
}

// give gives a batch back whose steps are done.
func (p *pipeline) give(b *batch) {
	freeBatches.Put(b)
	p.mine.Give(1)
}

// start starts the last stage.
func (p *pipeline) start() {
	p.running = true
	p.ordered = make(chan *batch, runtime.GOMAXPROCS(0)+1)
	p.stages.Go(func() {
		for b := range p.ordered {
			<-b.hashed
			if p.in.failed() == nil {
				if err := p.in.apply(b); err != nil {
					p.in.setFailed(err)
				}
			}
			p.give(b)
			p.left.Done()
		}
	})
}

// drain waits until all steps are done. The ingest's fields are the caller's then.
func (p *pipeline) drain() error {
	p.left.Wait()
	if err := p.in.failed(); err != nil {
		return err
	}
	if p.now == nil {
		return nil
	}
	b := p.now
	p.now = nil
	b.hash()
	err := p.in.apply(b)
	p.give(b)
	return err
}

// stop ends the stages.
func (p *pipeline) stop() {
	if p.running {
		p.running = false
		close(p.ordered)
	}
	p.stages.Wait()
	if p.now != nil {
		p.give(p.now)
		p.now = nil
	}
}

func (b *batch) hash() {
	for i := range b.steps {
		if s := &b.steps[i]; s.kind == stepChunk {
			s.hash = hashOf(b.data[s.off : s.off+s.len])
		}
	}
}

// apply does the steps of a batch.
func (in *Ingest) apply(b *batch) error {
	for i := range b.steps {
		s := &b.steps[i]
		switch s.kind {
		case stepChunk:
			if err := in.chunk(b.data[s.off:s.off+s.len], s.hash); err != nil {
				return err
			}
			in.outline.chunk(s.hash, s.len)
		case stepKnown:
			_, _ = in.sum.Write(s.hash[:]) // cannot fail
			in.list.add(s.num, s.len)
			in.outline.chunk(s.hash, s.len)
		case stepOutline:
			in.outline = newOutliner(s.outlined)
		case stepBegin:
			in.outline.end()
			in.path, in.order = s.hint.Path, ""
			in.inRun, in.start = false, 0
			in.pred.begin(s.hint)
		case stepEnter:
			in.pred.enterRun()
			in.inRun = s.stray
		case stepInner:
			if in.inRun {
				in.start = in.pred.at
			}
		case stepLeave:
			in.list.addTransform(s.run)
			in.outline.leave(s.run)
			in.pred.leaveRun()
			in.inRun, in.start = false, 0
		}
		s.hint, s.run, s.outlined = Hint{}, transformRun{}, nil // they are not kept with the memory of the batch
	}
	return nil
}

// setFailed keeps the first error of a stage or an encoder.
func (in *Ingest) setFailed(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.fail == nil {
		in.fail = err
	}
}

// sketchBatch is how many chunks one goroutine describes.
const sketchBatch = 64

// describe makes the sketches of pending chunks in parallel.
func (in *Ingest) describe(list []*fresh) {
	var all sync.WaitGroup
	for part := range slices.Chunk(list, sketchBatch) {
		all.Add(1)
		in.spawn(func() error {
			defer all.Done()
			for _, f := range part {
				f.sketch()
			}
			return nil
		})
	}
	all.Wait()
}
