package chunkstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/zeebo/blake3"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
	"snapfs/chunkstore/internal/sketch"
)

// hash decodes and hashes every chunk, and compares records with their digests. What cannot be decoded, or is not what
// the digest says, is lost.
func (b *rebuilder) hash(ctx context.Context) error {
	b.lost, b.vouched, b.doubtful = roaring64.New(), roaring64.New(), roaring64.New()
	wrong := roaring64.New()
	total, top := int64(b.found.GetCardinality()), uint64(0)
	if total > 0 {
		top = b.found.Maximum()
	}
	b.sums = make([]hash, 0, total)
	for it := b.found.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		b.opts.Progress(StageIndex, int64(len(b.sums)), total)
		num := it.Next()
		h, data, err := b.hashOf(b.locate, num)
		if err == nil && !b.isSure(num, h) {
			err = errWrongBytes
		}
		b.sums = append(b.sums, h)
		if err != nil {
			if skipLost(err) != nil {
				return err
			}
			b.lost.Add(num)
			if errors.Is(err, errWrongBytes) {
				wrong.Add(num)
			}
			continue
		}
		if rec, _, err := b.locate(num); err == nil && !rec.delta && num+sketchesKept > top {
			f := &fresh{num: num, rec: rec}
			if f.sk, f.sketched = sketch.Of(data); f.sketched {
				b.sketched = append(b.sketched, f)
			}
		}
	}
	b.opts.Progress(StageIndex, total, total)
	b.keepBases(wrong)
	return nil
}

// keepBases finds the wrong chunks that right ones need as bases. They stay in their pages, and are not found by a hash.
func (b *rebuilder) keepBases(wrong *roaring64.Bitmap) {
	b.bases = roaring64.New()
	if wrong.IsEmpty() {
		return
	}
	for front := roaring64.AndNot(b.found, b.lost); !front.IsEmpty(); {
		next := roaring64.New()
		for it := front.Iterator(); it.HasNext(); {
			rec, _, err := b.locate(it.Next())
			if err != nil {
				continue // lost
			}
			for _, base := range rec.bases {
				if wrong.Contains(base) && b.bases.CheckedAdd(base) {
					next.Add(base)
				}
			}
		}
		front = next
	}
}

// hashOf reads and hashes a chunk.
func (b *rebuilder) hashOf(loc locator, num uint64) (hash, []byte, error) {
	blk, err := b.s.block(loc, num)
	if err != nil {
		return hash{}, nil, err
	}
	data, err := blk.need(num)
	switch {
	case err != nil:
		return hash{}, nil, err
	case len(blk.digest) == 0:
	case blk.isRight(nil):
		b.vouched.Add(num)
	default:
		return hash{}, nil, errWrongBytes
	}
	return hashOf(data), data, nil
}

// checkDigests compares manifests with their digests. Records of stores of version 1 have none: if the digest of a
// manifest is wrong, one of its chunks in such records is, and none of them may be found by its hash, unless another
// manifest vouches for it.
func (b *rebuilder) checkDigests() {
	for _, m := range b.lists {
		chunks := m.bitmap()
		if chunks.Intersects(b.lost) {
			continue // report names it
		}
		sum := blake3.New()
		for _, r := range m.runs {
			for num := r.first; num < r.first+r.count && !m.copied; num++ {
				h := b.sums[b.found.Rank(num)-1]
				_, _ = sum.Write(h[:]) // cannot fail
			}
		}
		switch {
		case m.digest(sum) != m.Digest:
			b.doubtful.Or(chunks)
			b.res.Problems = append(b.res.Problems, Problem{
				fmt.Sprintf("manifest %d", m.ID), corrupt.Errorf("digest does not match").Error(), []ID{m.ID},
			})
		case !m.copied: // else the digest is over the numbers
			b.vouched.Or(chunks)
		}
	}
	b.doubtful.AndNot(b.vouched)
}

// chunks writes pages and hashes.
func (b *rebuilder) chunks(ctx context.Context) error {
	s := b.s
	blocks := map[pack.Location]bool{}
	i := -1
	for it := b.found.Iterator(); it.HasNext(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.update(func(t *writeTxn) error {
			for it.HasNext() {
				num := it.PeekNext()
				no, k := pageOf(num)
				if t.pages[no] == nil && !b.roomFor(t, no) {
					break
				}
				it.Next()
				i++
				lost := b.lost.Contains(num)
				if lost && !b.bases.Contains(num) {
					b.drop(num)
					continue
				}
				if t.pages[no] == nil {
					t.pages[no] = b.pages[no]
					t.growth += pageCost(no, b.pages[no])
				}
				if !lost && !b.doubtful.Contains(num) {
					if err := t.set(hashKey(b.sums[i]), binary.AppendUvarint(nil, num)); err != nil {
						return err
					}
				}
				t.state.chunks++
				if sl := b.pages[no].slots[k]; !blocks[sl.rec.Location] {
					blocks[sl.rec.Location] = !sl.rec.delta
					t.state.payload += sl.rec.Len
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	for len(b.sketched) > 0 {
		list := b.sketched[:min(batchMax, len(b.sketched))]
		b.sketched = b.sketched[len(list):]
		if err := s.update(func(t *writeTxn) error { return t.keepSketches(list) }); err != nil {
			return err
		}
	}
	return nil
}

// report names the manifests that need lost chunks.
func (b *rebuilder) report() {
	b.res.Chunks = b.s.state.chunks
	if b.lost.IsEmpty() {
		return
	}
	p := Problem{
		Where: packsName,
		What:  fmt.Sprintf("%d chunks cannot be read, or are not what was stored", b.lost.GetCardinality()),
	}
	for _, m := range b.lists {
		if m.bitmap().Intersects(b.lost) {
			p.Manifests = append(p.Manifests, m.ID)
		}
	}
	b.res.Problems = append(append(b.res.Problems, p), b.damage...)
}
