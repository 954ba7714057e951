package chunkstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/internal/varint"
)

// Commit makes the manifest durable together with the values fn writes, in one Badger transaction. fn may be nil; see
// Tx for what it may do.
//
// The order makes it safe: payload is synced before the index names it, and the manifest comes last. A crash leaves
// indexed chunks that no manifest names, which a collection removes, or bytes at the end of a pack, which Open cuts
// off.
func (in *Ingest) Commit(ctx context.Context, fn func(tx *Tx, m Manifest) error) (Manifest, error) {
	if err := in.check(); err != nil {
		return Manifest{}, err
	}
	m, err := in.commit(ctx, fn)
	if err != nil {
		in.err = err
		return Manifest{}, err
	}
	in.end(true)
	return m, nil
}

// Keep has the store keep what was taken so far though no manifest names it, until the next collection: an ingest that
// takes it again before finds it, by outlines, too. Only Abort may follow.
func (in *Ingest) Keep() error {
	if err := in.check(); err != nil {
		return err
	}
	in.err = in.keep()
	in.kept = in.err == nil
	return in.err
}

func (in *Ingest) keep() error {
	if err := in.endPart(); err != nil {
		return err
	}
	if err := in.settle(); err != nil {
		return err
	}
	return in.flushBatches(true, func([]*fresh, int) bool { return false })
}

func (in *Ingest) commit(ctx context.Context, fn func(tx *Tx, m Manifest) error) (_ Manifest, err error) {
	if len(in.list.header) != in.opts.HeaderSize {
		return Manifest{}, errors.New("the header was not given")
	}
	if err := in.endPart(); err != nil {
		return Manifest{}, err
	}
	if err := in.settle(); err != nil {
		return Manifest{}, err
	}
	if err := ctx.Err(); err != nil {
		return Manifest{}, err
	}
	s := in.s
	in.list.Digest = in.list.digest(in.sum)
	in.list.index()
	value := in.list.encode(s.codec)
	// Long lists of new chunks and big manifests are written first; nothing names them before the last transaction.
	if err := in.flushBatches(true, in.fitsLast); err != nil {
		return Manifest{}, err
	}
	id, err := s.writeAhead(value)
	if id != 0 {
		defer func() {
			if err != nil {
				s.dropParts(id)
			}
		}()
	}
	if err == nil {
		err = s.packs.Sync()
	}
	if err != nil {
		return Manifest{}, err
	}
	batch := in.appended
	err = s.update(func(t *writeTxn) error {
		if id == 0 {
			t.state.nextID++
			id = t.state.nextID
		}
		in.list.ID = id
		if n, err := s.indexChunks(t, batch); err != nil || n < len(batch) {
			return cmp.Or(err, ErrTxTooLarge)
		}
		if err := t.putManifest(id, value); err != nil {
			return err
		}
		t.state.manifests++
		t.state.logical += in.list.Size
		t.state.ahead -= in.ahead
		if fn != nil {
			if err := fn(&Tx{s: s, btx: t.btx, w: t}, in.list.Manifest); err != nil {
				return err
			}
		}
		t.done = append(t.done, func() {
			in.indexed(batch)
			if len(value) >= partSize {
				s.liveChanged() // its number may be lower than those of manifests that were there before
			}
		})
		return nil
	})
	return in.list.Manifest, err
}

// writeAhead writes the parts of a big manifest under a separate id, which it returns; 0 if it has no parts. If the
// manifest is not committed, dropParts removes them, or after a crash Open does (sweepParts).
func (s *Store) writeAhead(value []byte) (ID, error) {
	var id ID
	no := uint32(1)
	for group := range slices.Chunk(parts(value), maxTxnBytes/partSize) {
		own := id
		err := s.update(func(t *writeTxn) error {
			if own == 0 {
				t.state.nextID++
				own = t.state.nextID
			}
			for i, part := range group {
				if err := t.set(partKey(own, no+uint32(i)), part); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return id, err
		}
		id = own
		no += uint32(len(group))
	}
	return id, nil
}

// dropParts removes what writeAhead wrote.
func (s *Store) dropParts(id ID) {
	if err := s.update(func(t *writeTxn) error {
		_, err := t.deleteParts(id)
		return err
	}); err != nil {
		s.log.Warn("parts of a manifest that was given up stay until the store is opened again", "manifest", id,
			"error", err)
	}
}

// sweepParts removes the parts of manifests whose commit a crash prevented.
func (s *Store) sweepParts() error {
	lost := map[ID]bool{}
	if err := s.view(func(btx *badger.Txn) error {
		return scan(btx, []byte{keyPart}, []byte{keyPart}, func(key, _ []byte) (bool, error) {
			if len(key) != len(partKey(0, 0)) {
				return false, corrupt.Errorf("part key of %d bytes", len(key))
			}
			lost[ID(binary.BigEndian.Uint64(key[1:]))] = true
			return true, nil
		})
	}); err != nil {
		return err
	}
	for id := range lost {
		if err := s.update(func(t *writeTxn) error {
			_, err := get(t.btx, manifestKey(id))
			if errors.Is(err, ErrNotFound) {
				_, err = t.deleteParts(id)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// flushBatches writes appended chunks into the index until few are left, which bounds the memory that they use. A chunk
// is written with or after its bases: another ingest may find it, and this ingest may never end. Without all, those stay
// whose pages have chunks that are still being encoded, so that pages are written once.
func (in *Ingest) flushBatches(all bool, few func(left []*fresh, late int) bool) error {
	in.mu.Lock()
	ready, late := in.ordered(all || len(in.appended) >= appendedMax)
	in.appended = append(slices.Clone(ready), late...)
	in.mu.Unlock()
	for len(ready) > 0 && !few(ready, len(late)) {
		if err := in.s.pace(in.ctx); err != nil {
			return err
		}
		if err := in.s.packs.Sync(); err != nil {
			return err
		}
		n := 0
		if err := in.s.update(func(t *writeTxn) (err error) {
			n, err = in.s.indexChunks(t, ready)
			t.state.ahead++
			t.done = append(t.done, func() {
				in.indexed(ready[:n])
				in.ahead++
			})
			return err
		}); err != nil {
			return err
		}
		ready = ready[n:]
	}
	in.flushAt = len(ready) + len(late) + 2*batchMax
	return nil
}

// fewAppended is for flushBatches in the course of an ingest.
func fewAppended(left []*fresh, late int) bool { return len(left)+late <= batchMax }

// fitsLast reports whether the chunks that are left fit into the transaction that has the caller's values, too.
func (in *Ingest) fitsLast(left []*fresh, _ int) bool {
	entries, bytes := 0, int64(0)
	for _, f := range left {
		n, size := chunkCost(f)
		entries, bytes = entries+n, bytes+size
		if entries > min(lastEntries, in.s.limits.entries) || bytes > min(lastBytes, in.s.limits.bytes) {
			return false
		}
	}
	return true
}

// ordered returns the appended chunks in the order of their numbers, so that a transaction changes few pages, but bases
// before what needs them. Late are those that need one that is not in a pack yet, and without all, those of pages with
// such a chunk. mu is held.
func (in *Ingest) ordered(all bool) (ready, late []*fresh) {
	const isReady, isLate = 1, 2
	slices.SortFunc(in.appended, func(a, b *fresh) int { return cmp.Compare(a.num, b.num) })
	open := map[uint64]bool{}
	if !all {
		for num, f := range in.unindexed {
			if f.rec == nil && !f.rejected {
				no, _ := pageOf(num)
				open[no] = true
			}
		}
	}
	state := make(map[*fresh]int, len(in.appended))
	var visit func(f *fresh) int
	visit = func(f *fresh) int {
		if f.rec == nil {
			return isLate
		}
		if was := state[f]; was != 0 {
			return was
		}
		is := isReady
		if no, _ := pageOf(f.num); open[no] {
			is = isLate
		}
		for _, b := range f.rec.bases {
			if base := in.unindexed[b]; base != nil {
				is = max(is, visit(base))
			}
		}
		if state[f] = is; is == isReady {
			ready = append(ready, f)
		} else {
			late = append(late, f)
		}
		return is
	}
	for _, f := range in.appended {
		visit(f)
	}
	return ready, late
}

// indexed forgets chunks that are now in the index; they are the first of in.appended.
func (in *Ingest) indexed(batch []*fresh) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, f := range batch {
		delete(in.unwritten, f.hash)
		delete(in.unindexed, f.num)
		if f.sketched && !f.rec.delta {
			in.s.sketches.Add(f.num, f.sk)
		}
	}
	rest := in.appended[len(batch):]
	clear(in.appended[:len(batch)])
	in.appended = rest
}

// indexChunks writes as many of the chunks into the index as the transaction takes, the first at least, and returns how
// many these are.
func (s *Store) indexChunks(t *writeTxn, batch []*fresh) (int, error) {
	ends := map[uint32]int64{}
	recs := map[*located]bool{} // that are counted from now on
	n := 0
	for ; n < len(batch); n++ {
		f := batch[n]
		if !t.room(chunkCost(f)) {
			break
		}
		if err := t.set(hashKey(f.hash), binary.AppendUvarint(nil, f.num)); err != nil {
			return 0, err
		}
		no, i := pageOf(f.num)
		pg, err := t.edit(no)
		if err != nil {
			return 0, err
		}
		t.setSlot(pg, i, slot{f.rec, f.size})
		t.growth += sketchSize
		ends[f.rec.Pack] = max(ends[f.rec.Pack], f.rec.End())
		if !f.rec.counted && !recs[f.rec] {
			recs[f.rec] = true
			t.state.payload += f.rec.Len
		}
	}
	t.state.chunks += int64(n)
	t.done = append(t.done, func() {
		for r := range recs {
			r.counted = true
		}
	})
	if err := t.keepSketches(batch[:n]); err != nil {
		return 0, err
	}
	return n, t.extendPacks(ends)
}

// extendPacks records how far packs are named.
func (t *writeTxn) extendPacks(ends map[uint32]int64) error {
	for num, end := range ends {
		b, err := get(t.btx, packKey(num))
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		p := varint.Parser{Rest: b}
		if err == nil && int64(p.Uint()) >= end {
			continue
		}
		if err := t.set(packKey(num), binary.AppendUvarint(nil, uint64(end))); err != nil {
			return err
		}
		t.done = append(t.done, func() { t.packs.Named(num, end) })
	}
	return nil
}
