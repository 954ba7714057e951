package chunkstore

import (
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// A chunk lies in several records if it was moved: all of them decode to the same bytes. The last one is the one that
// the index named, unless a crash interrupted the move. Then the one before it was in use, and what the last one needs
// may be gone.
//
// A record found in the remains of another one (pack.Scan) may come from whoever stored that. It counts only if there
// is no other, or it has the same bytes.

// addCopy notes that a chunk lies in another record, behind those that are known.
func (b *rebuilder) addCopy(num uint64, before, sl slot) {
	if len(b.copies[num]) == 0 {
		b.copies[num] = []slot{before}
	}
	b.copies[num] = append(b.copies[num], sl)
}

// pick decides which record counts for each chunk that lies in several.
func (b *rebuilder) pick(ctx context.Context) error {
	p := picker{b: b, whole: roaring64.New()}
	for num, list := range b.copies {
		if err := ctx.Err(); err != nil {
			return err
		}
		slices.Reverse(list)
		slices.SortStableFunc(list, func(x, y slot) int {
			switch unsure := b.unsure[x.rec]; {
			case unsure == b.unsure[y.rec]:
				return 0
			case unsure:
				return 1
			}
			return -1
		})
		b.place(num, list[0])
	}
	// A chunk that was asked for by one that it needs itself is looked at again.
	for range pickRounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := p.whole.GetCardinality()
		p.met = p.whole.Clone()
		for num := range b.copies {
			p.pick(num)
		}
		if p.whole.GetCardinality() == before {
			break
		}
	}
	return nil
}

// pickRounds bounds the rounds of pick: two are enough for what a crash leaves.
const pickRounds = 16

// place makes a record the one that counts for a chunk.
func (b *rebuilder) place(num uint64, sl slot) {
	no, i := pageOf(num)
	b.pages[no].slots[i] = sl
}

// picker finds records of which all bases are there.
type picker struct {
	b          *rebuilder
	met, whole *roaring64.Bitmap // chunks that were looked at, and those that can be decoded
}

// pick reports whether a chunk and all that it needs have records, and places those. A chunk that needs itself has none.
func (p picker) pick(num uint64) bool {
	if !p.b.found.Contains(num) {
		return false
	}
	if !p.met.CheckedAdd(num) {
		return p.whole.Contains(num)
	}
	list := p.b.copies[num]
	if len(list) == 0 {
		no, i := pageOf(num)
		list = []slot{p.b.pages[no].slots[i]}
	}
	for _, sl := range list {
		if !slices.ContainsFunc(sl.rec.bases, func(base uint64) bool { return !p.pick(base) || !p.ranks(base, sl.rec) }) {
			p.b.place(num, sl)
			p.whole.Add(num)
			return true
		}
	}
	return false
}

// ranks reports whether the record that counts for a base may be one that rec needs.
func (p picker) ranks(base uint64, rec *located) bool {
	at, _, err := p.b.locate(base)
	return err == nil && at.rank() < rec.rank()
}

// isSure reports whether the bytes of a chunk that hash to h are those that were stored: its record is sure, or all of
// its records have the same.
func (b *rebuilder) isSure(num uint64, h hash) bool {
	at, _, err := b.locate(num)
	if err != nil || !b.unsure[at] {
		return err == nil
	}
	for _, sl := range b.copies[num] {
		other, _, err := b.hashOf(func(n uint64) (*located, int, error) {
			if n == num {
				return sl.rec, sl.len, nil
			}
			return b.locate(n)
		}, num)
		if err == nil && other != h {
			return false
		}
	}
	return true
}
