package squashfs

import (
	"bytes"
	"context"

	"github.com/zeebo/blake3"
)

// shipFile is a file with its own blocks. It belongs to the committer until done is closed.
type shipFile struct {
	layout layout
	sums   *blake3.Hasher // of the blocks' sums, holes included
	sum    [32]byte
	done   chan struct{}
}

// file implements dataWriter. Files smaller than a block share fragments; the others have blocks. Of equal files only
// the first is written.
func (s *shipData) file(ctx context.Context, _ string, e *Entry, f File, extents []Extent) (*layout, error) {
	size, block := e.Attr.Size, int64(s.w.blockSize)
	if size < block && len(extents) > 0 && !s.noFragments {
		return s.smallFile(ctx, f, int(size))
	}
	ranges := blockRanges(extents, size, block)
	if same, err := s.duplicate(ctx, f, size, ranges); same != nil || err != nil {
		return same, err
	}
	file := &shipFile{layout: layout{fragment: noFragment}, sums: blake3.New(), done: make(chan struct{})}
	s.large[size] = append(s.large[size], file)
	at := int64(0)
	for _, r := range append(ranges, Extent{size, 0}) {
		if r.Off > at {
			if err := s.send(ctx, shipItem{file: file, hole: r.Off - at}); err != nil {
				return nil, err
			}
		}
		for at = r.Off; at < r.Off+r.Len; {
			j, err := s.job(ctx)
			if err != nil {
				return nil, err
			}
			j.src = j.src[:min(block, size-at)]
			if err := readExactly(f, j.src, at); err != nil {
				return nil, err
			}
			at += int64(len(j.src))
			if err := s.submit(ctx, j, file); err != nil {
				return nil, err
			}
		}
	}
	return &file.layout, s.send(ctx, shipItem{file: file})
}

// smallFile puts a file into the fragment being filled.
func (s *shipData) smallFile(ctx context.Context, f File, size int) (*layout, error) {
	var p []byte
	if s.tails != nil && len(s.tails.src)+size <= cap(s.tails.src) {
		p = s.tails.src[len(s.tails.src):][:size]
	} else {
		p = s.scratch[:size]
	}
	if err := readExactly(f, p, 0); err != nil {
		return nil, err
	}
	sum := blake3.Sum256(p)
	key := [16]byte(sum[:16])
	place, ok := s.small[key]
	if !ok {
		if s.tails != nil && len(s.tails.src)+size > cap(s.tails.src) {
			if err := s.flushTails(ctx); err != nil {
				return nil, err
			}
		}
		if s.tails == nil {
			var err error
			if s.tails, err = s.job(ctx); err != nil {
				return nil, err
			}
			s.tails.src = s.tails.src[:0]
		}
		place = tailPos{s.tailIndex, uint32(len(s.tails.src))}
		s.tails.src = append(s.tails.src, p...)
		s.small[key] = place
	}
	return &layout{fragment: place.fragment, offset: place.offset}, nil
}

// flushTails ends the fragment being filled.
func (s *shipData) flushTails(ctx context.Context) error {
	if s.tails == nil {
		return nil
	}
	j := s.tails
	s.tails = nil
	s.tailIndex++
	return s.submit(ctx, j, nil)
}

// duplicate finds an equal file written before. It reads f only if there is one of the same size.
func (s *shipData) duplicate(ctx context.Context, f File, size int64, ranges []Extent) (*layout, error) {
	if len(s.large[size]) == 0 {
		return nil, nil
	}
	block := int64(s.w.blockSize)
	sums := blake3.New()
	at := int64(0)
	for _, r := range append(ranges[:len(ranges):len(ranges)], Extent{size, 0}) {
		hashHole(sums, uint64((r.Off-at+block-1)/block))
		for at = r.Off; at < r.Off+r.Len; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p := s.scratch[:min(block, size-at)]
			if err := readExactly(f, p, at); err != nil {
				return nil, err
			}
			at += int64(len(p))
			if allZero(p) {
				hashHole(sums, 1)
				continue
			}
			sum := blake3.Sum256(p)
			hashBlock(sums, sum)
		}
	}
	var sum [32]byte
	sums.Sum(sum[:0])
	for _, g := range s.large[size] {
		select {
		case <-g.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if bytes.Equal(g.sum[:], sum[:]) {
			return &g.layout, nil
		}
	}
	return nil, nil
}

// A file's sum is that of its blocks' sums. A hole counts as a byte for each block, so that a file of zeros equals a
// sparse one.
func hashHole(h *blake3.Hasher, blocks uint64) {
	zeros := make([]byte, min(blocks, spoolChunk))
	for ; blocks > 0; blocks -= uint64(len(zeros)) {
		zeros = zeros[:min(blocks, spoolChunk)]
		_, _ = h.Write(zeros) // a hash never fails
	}
}

func hashBlock(h *blake3.Hasher, sum [32]byte) {
	_, _ = h.Write(append([]byte{1}, sum[:]...)) // a hash never fails
}

// compress is the work of a worker.
func (j *shipJob) compress(p compressor) {
	j.zero = j.hash && allZero(j.src)
	if !j.zero {
		if j.hash {
			j.sum = blake3.Sum256(j.src)
		}
		j.out, j.compressed, j.err = p.compress(j.out[:0], j.src)
	}
	j.done <- struct{}{}
}

// commitAll is the committer.
func (s *shipData) commitAll(ctx context.Context) error {
	for it := range s.items {
		var err error
		switch {
		case it.job != nil:
			select {
			case <-it.job.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			err = s.commit(it.job, it.file)
			s.free <- it.job
		case it.hole > 0:
			blocks := uint64((it.hole + int64(s.w.blockSize) - 1) / int64(s.w.blockSize))
			it.file.layout.add(blocks, 0)
			it.file.layout.sparse += uint64(it.hole)
			hashHole(it.file.sums, blocks)
		case it.file != nil:
			it.file.sums.Sum(it.file.sum[:0])
			it.file.sums = nil
			close(it.file.done)
		default:
			err = s.w.finish(it.pending)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// commit writes a block that a worker has finished.
func (s *shipData) commit(j *shipJob, file *shipFile) error {
	if j.err != nil {
		return j.err
	}
	if j.zero {
		file.layout.add(1, 0)
		file.layout.sparse += uint64(len(j.src))
		hashHole(file.sums, 1)
		return nil
	}
	data, header := j.src, uint32(len(j.src))|dataUncompressed
	if j.compressed {
		data, header = j.out, uint32(len(j.out))
	}
	start := s.out.off
	if _, err := s.out.Write(data); err != nil {
		return err
	}
	if file == nil {
		s.fragments = append(s.fragments, fragmentEntry{start: start, size: header})
		return nil
	}
	if file.layout.start == 0 {
		file.layout.start = start
	}
	file.layout.add(1, header)
	hashBlock(file.sums, j.sum)
	return nil
}
