package chunkstore

import (
	"cmp"
	"slices"

	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/pack"
	"snapfs/chunkstore/internal/sketch"
)

// blockSize is how many bytes of chunks are compressed into one frame; a single chunk may be longer.
const blockSize = 256 << 10

// A delta is dropped for a plain frame if it is longer than rebasePercent of that frame. Deltas shorter than a fifth of
// their chunk are not compared.
const rebasePercent = 95

func (in *Ingest) levels() (delta, base frame.Level) {
	if in.repack {
		return frame.Best, frame.Best
	}
	if in.opts.Background {
		return frame.Better, frame.Better
	}
	return frame.Quick, frame.Quick
}

// locate finds a chunk of the store or of this ingest.
func (in *Ingest) locate(num uint64) (*located, int, error) {
	in.mu.Lock()
	f := in.unindexed[num]
	if f != nil {
		defer in.mu.Unlock()
		if f.rec != nil {
			return f.rec, len(f.data) + f.size, nil
		}
		return &located{delta: len(f.bases) > 0, gen: f.gen, bases: f.bases}, len(f.data), nil
	}
	in.mu.Unlock()
	return in.s.locate(num)
}

// bytes returns the contents of a chunk of the store or of this ingest. Callers must not change them.
func (in *Ingest) bytes(num uint64) ([]byte, error) {
	in.mu.Lock()
	f := in.unindexed[num]
	if f != nil && f.data != nil {
		defer in.mu.Unlock()
		return f.data, nil
	}
	in.mu.Unlock()
	if f == nil { // what it needs is in the index, too, even if this ingest is about to move it
		return in.s.chunk(in.s.locate, num)
	}
	return in.s.chunk(in.locate, num)
}

// dispatch starts the encoding of a new chunk.
func (in *Ingest) dispatch(f *fresh) error {
	in.mu.Lock()
	in.unindexed[f.num] = f
	appended := len(in.appended)
	in.mu.Unlock()
	if len(f.bases) > 0 {
		in.spawn(func() error { return in.delta(f) })
	} else {
		f.waits = true
		in.pending = append(in.pending, f)
		in.pendingBytes += max(int64(len(f.data)), pendingMin)
	}
	if in.pendingBytes >= pendingMax {
		if err := in.flushPending(!in.repack); err != nil {
			return err
		}
	}
	if appended >= in.flushAt {
		return in.flushBatches(false, fewAppended)
	}
	return nil
}

// spawn runs fn concurrently; the number of such calls is bounded.
func (in *Ingest) spawn(fn func() error) {
	if in.repack {
		// No caller waits for a repack: one processor is enough.
		if err := fn(); err != nil {
			in.setFailed(err)
		}
		return
	}
	in.slots <- struct{}{}
	in.wg.Go(func() {
		defer func() { <-in.slots }()
		if err := fn(); err != nil {
			in.setFailed(err)
		}
	})
}

// failed returns the first error of the encoders.
func (in *Ingest) failed() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.fail
}

// delta encodes a chunk against its bases. If that does not pay, it leaves the chunk for a block.
func (in *Ingest) delta(f *fresh) error {
	sc := pack.TakeScratch()
	defer sc.Release()
	var dict []byte
	for i, num := range f.bases {
		c, err := in.bytes(num)
		if err != nil {
			if skipLost(err) != nil {
				return err
			}
			in.reject(f)
			return nil
		}
		if len(f.bases) == 1 {
			dict = c
			break
		}
		if i == 0 {
			dict = sc.Raw[:0]
		}
		dict = append(dict, c...)
		sc.Raw = dict
	}
	level, _ := in.levels()
	sc.Frame = in.s.codec.Encode(sc.Frame[:0], f.data, dict, level)
	if len(sc.Frame) > len(f.data)/5 && !in.repack {
		sc.Record = in.s.codec.Encode(sc.Record[:0], f.data, nil, level)
		if len(sc.Frame)*100 > min(len(sc.Record), len(f.data))*rebasePercent {
			in.reject(f)
			return nil
		}
	}
	return in.appendRecord(sc, &pack.Record{
		Kind: pack.Delta, Members: []pack.Member{{Num: f.num, Len: len(f.data)}}, Gen: f.gen, Bases: f.bases,
		Frame: sc.Frame,
	}, []*fresh{f})
}

// reject leaves a chunk for a block, where later similar chunks can find it.
func (in *Ingest) reject(f *fresh) {
	f.sketch()
	in.mu.Lock()
	defer in.mu.Unlock()
	f.bases, f.gen, f.rejected = nil, 0, true
	in.rejected = append(in.rejected, f)
}

// sketch describes the chunk, once.
func (f *fresh) sketch() {
	if !f.looked {
		f.looked = true
		f.sk, f.sketched = sketch.Of(f.data)
	}
}

// appendRecord appends a record to a pack.
func (in *Ingest) appendRecord(sc *pack.Scratch, r *pack.Record, chunks []*fresh) error {
	r.Digest = digestOf(hashesOf(chunks))
	sc.Record = pack.AppendRecord(sc.Record[:0], r)
	at, err := in.s.packs.Append(sc.Record, &in.holds)
	if err != nil {
		return err
	}
	if in.moves {
		in.s.moved.Add(at.Len)
	} else {
		in.s.stored.Add(at.Len)
	}
	rec := &located{Location: at, delta: r.Kind == pack.Delta, gen: r.Gen, bases: r.Bases}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range chunks {
		f.rec, f.size, f.data = rec, len(f.data), nil
		in.appended = append(in.appended, f)
	}
	if n := in.stored.Add(at.Len); in.opts.Most > 0 && n > in.opts.Most {
		return ErrTooMuch
	}
	return nil
}

// hashesOf returns the hashes of chunks in order of their numbers.
func hashesOf(chunks []*fresh) []hash {
	chunks = slices.SortedFunc(slices.Values(chunks), func(a, b *fresh) int { return cmp.Compare(a.num, b.num) })
	sums := make([]hash, len(chunks))
	for i, f := range chunks {
		sums[i] = f.hash
	}
	return sums
}

// flushPending compresses the pending chunks into blocks, similar ones together. With similar, chunks that are similar
// to a known chunk become its deltas instead.
func (in *Ingest) flushPending(similar bool) error {
	list := in.pending
	in.pending, in.pendingBytes = nil, 0
	for _, f := range list {
		f.waits = false
	}
	slices.SortStableFunc(list, func(a, b *fresh) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.off, b.off))
	})
	if similar && !in.pipe.alone {
		in.describe(list)
	}
	if similar {
		var err error
		if list, err = in.withoutSimilar(list); err != nil {
			return err
		}
	}
	if err := in.addPrefixes(list); err != nil {
		return err
	}
	return in.blocks(list)
}

// withoutSimilar has the chunks that are similar to a known chunk encoded as its deltas, and returns the others.
func (in *Ingest) withoutSimilar(list []*fresh) ([]*fresh, error) {
	left := list[:0]
	for _, f := range list {
		if err := in.ctx.Err(); err != nil {
			return nil, err
		}
		ok, err := in.findSimilar(f)
		if err != nil {
			return nil, err
		}
		if ok {
			in.spawn(func() error { return in.delta(f) })
		} else {
			left = append(left, f)
		}
	}
	return left, nil
}

// blocks compresses chunks into blocks, in this order.
func (in *Ingest) blocks(list []*fresh) error {
	var group []*fresh
	size := 0
	flush := func() {
		if len(group) > 0 {
			g := group
			in.spawn(func() error { return in.block(g) })
		}
		group, size = nil, 0
	}
	for _, f := range list {
		if err := in.ctx.Err(); err != nil {
			return err
		}
		limit := in.blockLimit(f.prefix)
		if size > 0 && (size+len(f.data) > limit || group[0].prefix != f.prefix) || len(group) == pack.MaxMembers {
			flush()
		}
		group = append(group, f)
		if size += len(f.data); size >= limit {
			flush()
		}
	}
	flush()
	return in.failed()
}

// findSimilar looks for bases among similar chunks, and makes the chunk findable for others.
func (in *Ingest) findSimilar(f *fresh) (bool, error) {
	if f.sketch(); !f.sketched {
		return false, nil
	}
	var err error
	_, ok := in.s.sketches.Find(f.sk, func(num uint64) bool {
		if err != nil || num == f.num {
			return false
		}
		err = in.resolve(f, []uint64{num})
		return err == nil && len(f.bases) > 0
	})
	in.s.sketches.Add(f.num, f.sk)
	return ok, err
}

// block encodes chunks as one frame.
func (in *Ingest) block(group []*fresh) error {
	r := &pack.Record{Kind: pack.Block, Members: make([]pack.Member, 0, len(group))}
	sc := pack.TakeScratch()
	defer sc.Release()
	raw := group[0].data
	if len(group) > 1 {
		raw = sc.Raw[:0]
		for _, f := range group {
			raw = append(raw, f.data...)
		}
		sc.Raw = raw
	}
	for _, f := range group {
		r.Members = append(r.Members, pack.Member{Num: f.num, Len: len(f.data)})
	}
	_, level := in.levels()
	var dict []byte
	if p := group[0].prefix; p != nil {
		dict, r.Bases = p.data, []uint64{p.num}
	}
	sc.Frame = in.s.codec.EncodeBlock(sc.Frame[:0], raw, dict, level)
	if r.Frame = sc.Frame; len(r.Frame) >= len(raw) {
		r.Kind, r.Frame, r.Bases = pack.Stored, raw, nil
		for _, f := range group {
			f.sketched = false // a delta of what does not compress hardly ever pays for its sketch
		}
	}
	return in.appendRecord(sc, r, group)
}

// settle waits until everything taken so far is in packs.
func (in *Ingest) settle() error {
	if err := in.pipe.drain(); err != nil {
		return err
	}
	in.outline.end()
	if err := in.flushPending(!in.repack); err != nil {
		return err
	}
	in.wg.Wait()
	in.mu.Lock()
	in.pending, in.rejected = in.rejected, nil
	in.mu.Unlock()
	if err := in.flushPending(false); err != nil {
		return err
	}
	in.wg.Wait()
	return in.failed()
}
