package chunkstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/lockorder"
)

// Usage is the space accounting of a set of manifests, in bytes. A block or a delta counts as a whole for everything
// that needs a chunk in it.
type Usage struct {
	Logical     int64 // sum of the streams' lengths
	Stored      int64 // compressed payload they need, delta bases included
	Unique      int64 // part of Stored that only this set needs
	Shared      int64 // part of Stored that others need too
	Reclaimable int64 // what deleting the set and collecting would free, at least
}

// Stats is the space accounting of the whole store.
type Stats struct {
	Manifests int64
	Chunks    int64
	Logical   int64 // of all manifests
	Payload   int64 // live compressed bytes
	Garbage   int64 // compressed bytes that no manifest needs
	Packs     int64 // allocated bytes of packs
	Index     int64 // allocated bytes of Badger

	IndexCache int64 // bytes of memory that decompressed blocks of the index and its filter may take
	Written    int64 // bytes of records of new data since the store was opened
	Moved      int64 // bytes of records that collections wrote since then
}

// liveSet caches what manifests need, for Stats: commits add to it, a deletion drops it.
type liveSet struct {
	changes atomic.Uint64 // counts what drops it: that happens inside transactions, and must not wait for a count

	mu      lockorder.Mutex[lockorder.LiveSet]
	chunks  *roaring64.Bitmap      // nil = unknown; guarded by mu
	records map[pack.Location]bool // the blocks among their records; guarded by mu
	payload int64                  // bytes of their records; guarded by mu
	last    ID                     // manifests up to here are in it; guarded by mu
	since   uint64                 // changes when it was begun; guarded by mu
}

// liveChanged is called after a manifest was deleted or chunks were moved.
func (s *Store) liveChanged() { s.liveSet.changes.Add(1) }

// livePayload sums the records that manifests need. Only manifests added since the last call are read.
func (s *Store) livePayload(ctx context.Context) (int64, error) {
	s.liveSet.mu.Lock()
	defer s.liveSet.mu.Unlock()
	return s.livePayloadLocked(ctx)
}

// livePayloadLocked is livePayload for callers that hold liveSet.mu. The rest of liveSet is known after it.
func (s *Store) livePayloadLocked(ctx context.Context) (int64, error) {
	l := &s.liveSet
	if now := s.liveSet.changes.Load(); now != l.since {
		l.chunks, l.records, l.payload, l.last, l.since = nil, nil, 0, 0, now
	}
	if l.chunks == nil {
		if err := s.countLive(ctx); err != nil {
			return 0, err
		}
	}
	front := roaring64.New()
	if err := s.eachManifestAfter(ctx, l.last, func(m *chunkList) error {
		front.Or(m.bitmap())
		l.last = m.ID
		return nil
	}); err != nil {
		return 0, err
	}
	front.AndNot(l.chunks)
	for !front.IsEmpty() {
		l.chunks.Or(front)
		next := roaring64.New()
		for it := front.Iterator(); it.HasNext(); {
			rec, _, err := s.locate(it.Next())
			if errors.Is(err, errNoChunk) {
				continue
			}
			if err != nil {
				return 0, err
			}
			if !rec.delta {
				if l.records[rec.Location] {
					continue
				}
				l.records[rec.Location] = true
			}
			l.payload += rec.Len
			for _, b := range rec.bases {
				if !l.chunks.Contains(b) {
					next.Add(b)
				}
			}
		}
		front = next
	}
	return l.payload, nil
}

// countLive counts all that manifests need, in two walks over the index. The caller holds liveSet.mu.
func (s *Store) countLive(ctx context.Context) error {
	l := &s.liveSet
	s.writeMu.Lock()
	last := s.state.nextID
	btx := s.db.NewTransaction(false)
	s.writeMu.Unlock()
	defer btx.Discard()
	set := &bitset{}
	if err := s.eachManifestOnce(ctx, func(m *chunkList) {
		if m.ID <= last {
			set.addList(m)
		}
	}); err != nil {
		return err
	}
	if err := s.denseClosure(ctx, set); err != nil {
		return err
	}
	records, payload := map[pack.Location]bool{}, int64(0)
	if err := s.eachPage(ctx, btx, func(no uint64, pg *page) error {
		for i := range pg.slots {
			r := pg.slots[i].rec
			if r == nil || !set.has(no*pageChunks+uint64(i)) || records[r.Location] {
				continue
			}
			if !r.delta {
				records[r.Location] = true
			}
			payload += r.Len
		}
		return nil
	}); err != nil {
		return err
	}
	l.chunks, l.records, l.payload, l.last = set.bitmap(), records, payload, last
	return nil
}

// garbage is how much of the packs' files is not payload.
func (s *Store) garbage(payload int64) int64 {
	return max(s.packBytes()-payload, 0)
}

// packBytes is the length of the packs without their headers and holes. More space may be allocated to the files.
func (s *Store) packBytes() int64 {
	n := int64(0)
	for _, size := range s.packs.Occupied() {
		n += size
	}
	return n
}

// Stats accounts for the store from counters that are kept up to date.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	if err := s.enter(ctx); err != nil {
		return Stats{}, err
	}
	defer s.leave()
	s.writeMu.Lock()
	st := s.state
	s.writeMu.Unlock()
	payload := st.payload
	if !st.clean() {
		var err error
		if payload, err = s.livePayload(ctx); err != nil {
			return Stats{}, err
		}
	}
	packs, err := s.packs.Allocated()
	if err != nil {
		return Stats{}, err
	}
	index, err := allocatedIn(s.guard.dir)
	if err != nil {
		return Stats{}, err
	}
	cache, err := s.db.CacheMaxCost(badger.BlockCache, -1)
	if err != nil {
		return Stats{}, err
	}
	return Stats{
		IndexCache: cache + s.hashes.bytes(), Written: s.stored.Load(), Moved: s.moved.Load(),
		Manifests: st.manifests, Chunks: st.chunks, Logical: st.logical,
		Payload: payload, Garbage: s.garbage(payload), Packs: packs, Index: index,
	}, nil
}

// indexAhead is what the index may have on the disk before it needs it: journals, which are allocated whole.
const indexAhead = 128 << 20

// Allocated is what the store has on its disk, in bytes, and would have less of with less in it.
func (s *Store) Allocated(ctx context.Context) (int64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	packs, err := s.packs.Allocated()
	if err != nil {
		return 0, err
	}
	index, err := allocatedIn(s.guard.dir)
	return packs + max(0, index-indexAhead), err
}

// Usage accounts for a set of manifests against all others of the store. Each counts once; ErrNotFound if one is gone. It
// looks at all manifests, unless the same was asked since the last one was stored or deleted.
func (s *Store) Usage(ctx context.Context, ids ...ID) (Usage, error) {
	if err := s.enter(ctx); err != nil {
		return Usage{}, err
	}
	defer s.leave()
	in, q := s.accounted(), questionOf(ids)
	if u, ok := s.recall(in).usages[q]; ok {
		return u, nil
	}
	var u Usage
	asked := map[ID]bool{}
	set, others := roaring64.New(), roaring64.New()
	for _, id := range ids {
		m, err := s.manifest(id)
		if err != nil {
			return Usage{}, err
		}
		if !asked[id] {
			asked[id] = true
			u.Logical += m.Size
			set.Or(m.bitmap())
		}
	}
	if err := s.eachManifest(ctx, func(m *chunkList) error {
		if !asked[m.ID] {
			others.Or(m.bitmap())
		}
		return nil
	}); err != nil {
		return Usage{}, fmt.Errorf("account: %w", err)
	}
	mine, err := s.recordsOf(set)
	if err != nil {
		return Usage{}, err
	}
	theirs, err := s.recordsOf(others)
	if err != nil {
		return Usage{}, err
	}
	for at := range mine {
		u.Stored += at.Len
		if theirs[at] {
			u.Shared += at.Len
		}
	}
	u.Unique = u.Stored - u.Shared
	u.Reclaimable = u.Unique
	s.remember(in, q, &u, nil)
	return u, nil
}

// recordsOf lists the records that a set of chunks needs, bases included; set is closed over them.
func (s *Store) recordsOf(set *roaring64.Bitmap) (map[pack.Location]bool, error) {
	if err := s.closure(set, set.Clone()); err != nil {
		return nil, err
	}
	recs := map[pack.Location]bool{}
	for it := set.Iterator(); it.HasNext(); {
		rec, _, err := s.locate(it.Next())
		if errors.Is(err, errNoChunk) {
			continue
		}
		if err != nil {
			return nil, err
		}
		recs[rec.Location] = true
	}
	return recs, nil
}
