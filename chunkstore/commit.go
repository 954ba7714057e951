package chunkstore

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/pack"
	"snapfs/chunkstore/internal/varint"
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
	// Big lists of new chunks and big manifests are written first; nothing names them before the last transaction.
	if err := in.flushBatches(batchMax); err != nil {
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
		if err := s.indexChunks(t, batch); err != nil {
			return err
		}
		if err := t.putManifest(id, value); err != nil {
			return err
		}
		t.state.manifests++
		t.state.logical += in.list.Size
		t.state.ahead -= in.ahead
		if fn != nil {
			if err := fn(&Tx{s, t.btx, t}, in.list.Manifest); err != nil {
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
	if err := s.update(func(t *writeTxn) error { return t.deleteParts(id) }); err != nil {
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
				return t.deleteParts(id)
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// flushBatches writes appended chunks into the index until at most keep are left, which bounds the memory that they
// use. A chunk is written with or after its bases: another ingest may find it, and this ingest may never end.
func (in *Ingest) flushBatches(keep int) error {
	in.mu.Lock()
	slices.SortStableFunc(in.appended, func(a, b *fresh) int { return cmp.Compare(a.gen, b.gen) }) // bases come first
	var ready, late []*fresh
	waits := map[uint64]bool{}
	for _, f := range in.appended {
		if slices.ContainsFunc(f.bases, func(b uint64) bool {
			base := in.unindexed[b]
			return waits[b] || base != nil && base.rec == nil
		}) {
			waits[f.num] = true
			late = append(late, f)
		} else {
			ready = append(ready, f)
		}
	}
	in.appended = append(slices.Clone(ready), late...)
	in.mu.Unlock()
	for len(ready)+len(late) > keep && len(ready) > 0 {
		batch := ready[:min(batchMax, len(ready))]
		ready = ready[len(batch):]
		if err := in.s.packs.Sync(); err != nil {
			return err
		}
		if err := in.s.update(func(t *writeTxn) error {
			t.done = append(t.done, func() {
				in.indexed(batch)
				in.ahead++
			})
			t.state.ahead++
			return in.s.indexChunks(t, batch)
		}); err != nil {
			return err
		}
	}
	return nil
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
	in.appended = slices.Clone(in.appended[len(batch):])
}

// indexChunks writes chunks into the index.
func (s *Store) indexChunks(t *writeTxn, batch []*fresh) error {
	ends := map[uint32]int64{}
	recs := map[pack.Location]bool{}
	for _, f := range batch {
		if err := t.set(hashKey(f.hash), binary.AppendUvarint(nil, f.num)); err != nil {
			return err
		}
		no, i := pageOf(f.num)
		pg, err := t.edit(no)
		if err != nil {
			return err
		}
		pg.slots[i] = slot{f.rec, f.size}
		ends[f.rec.Pack] = max(ends[f.rec.Pack], f.rec.End())
		if !recs[f.rec.Location] {
			recs[f.rec.Location] = true
			t.state.payload += f.rec.Len
		}
	}
	t.state.chunks += int64(len(batch))
	if err := t.keepSketches(batch); err != nil {
		return err
	}
	return t.extendPacks(ends)
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
