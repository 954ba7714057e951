package chunkstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	badger "github.com/dgraph-io/badger/v4"

	"snapfs/chunkstore/internal/sketch"
)

// sketchesKept is how many chunks have their sketches stored and loaded: the newest.
const sketchesKept = sketch.Slots

// sketchLoad loads the sketches when the first ingest begins: readers do not need them.
type sketchLoad struct{ once sync.Once }

func sketchesKey(first uint64) []byte {
	return appendNumber([]byte{keySketches}, first)
}

// keepSketches writes the sketches of a batch's chunks, except deltas: similar chunks are found by their bases.
func (t *writeTxn) keepSketches(batch []*fresh) error {
	var list []sketch.Entry
	for _, f := range batch {
		if f.sketched && !f.rec.delta {
			list = append(list, sketch.Entry{Num: f.num, Sketch: f.sk})
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b sketch.Entry) int { return cmp.Compare(a.Num, b.Num) })
	return t.set(sketchesKey(list[0].Num), sketch.AppendSegment(nil, list))
}

// loadSketches makes the newest chunks findable. Sketches are hints: damaged ones are left out.
func (s *Store) loadSketches() {
	s.sketchLoad.once.Do(func() {
		var segments [][]byte
		n := 0
		if err := s.eachSketches(func(_, value []byte) bool {
			segments = append(segments, bytes.Clone(value))
			n += sketch.Count(value)
			return n < sketchesKept
		}); err != nil {
			s.log.Warn("sketches cannot be read", "error", err)
		}
		for _, b := range slices.Backward(segments) {
			if err := s.sketches.Load(b); err != nil {
				s.log.Warn("sketches are damaged", "error", err)
			}
		}
	})
}

// eachSketches calls fn for the segments, newest first, until it returns false.
func (s *Store) eachSketches(fn func(key, value []byte) bool) error {
	return s.view(func(btx *badger.Txn) error {
		_, err := guarded("scan sketches", func() (struct{}, error) {
			opts := badger.DefaultIteratorOptions
			opts.Reverse, opts.PrefetchValues = true, false
			it := btx.NewIterator(opts)
			defer it.Close()
			for it.Seek([]byte{keySketches + 1}); it.ValidForPrefix([]byte{keySketches}); it.Next() {
				v, err := it.Item().ValueCopy(nil)
				if err != nil || !fn(it.Item().Key(), v) {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		return err
	})
}

// pruneSketches removes the sketches of chunks that are gone, and of those beyond sketchesKept.
func (s *Store) pruneSketches(ctx context.Context) error {
	changed := map[string][]byte{} // by key; nil: to be removed
	n := 0
	if err := s.eachSketches(func(key, value []byte) bool {
		if n >= sketchesKept {
			changed[string(key)] = nil
			return ctx.Err() == nil
		}
		all, err := sketch.ParseSegment(value)
		left := slices.DeleteFunc(slices.Clone(all), func(c sketch.Entry) bool {
			_, _, err := s.locate(c.Num)
			return errors.Is(err, errNoChunk)
		})
		n += len(left)
		switch {
		case len(left) == 0:
			changed[string(key)] = nil
		case len(left) < len(all) || err != nil:
			changed[string(key)] = sketch.AppendSegment(nil, left)
		}
		return ctx.Err() == nil
	}); err != nil || len(changed) == 0 {
		return errors.Join(err, ctx.Err())
	}
	for key, value := range changed {
		if err := s.update(func(t *writeTxn) error {
			if value == nil {
				return t.delete([]byte(key))
			}
			return t.set([]byte(key), value)
		}); err != nil {
			return err
		}
	}
	return ctx.Err()
}
