package uppers

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"snapfs/chunkstore"
	"snapfs/sandbox/internal/errclass"
)

// wideKey is the upper half of inode numbers of an upper's host.
type wideKey struct{ upper, high uint64 }

func (w wideKey) String() string { return fmt.Sprintf("%d/%d", w.upper, w.high) }

// wideSpaces are the further spaces; the map is never changed.
func (s *Set) wideSpaces() map[wideKey]uint64 {
	if m := s.wide.Load(); m != nil {
		return *m
	}
	return nil
}

// putWide changes a copy of the table of further spaces. The caller holds mu, or is alone.
func (s *Set) putWide(change func(m map[wideKey]uint64)) {
	m := maps.Clone(s.wideSpaces())
	if m == nil {
		m = map[wideKey]uint64{}
	}
	change(m)
	s.wide.Store(&m)
}

// WideIno is for layers.Options.WideIno: what the numbers of the upper with InoBase base begin with where those of the
// host begin with high. Every look-up of every overlay asks.
func (s *Set) WideIno(base, high uint64) (uint64, error) {
	w := wideKey{upperOf(base), high}
	if w.upper < spaceUppers && high < 1<<8 {
		return base | high<<SpaceBits, nil
	}
	if base, ok := s.wideSpaces()[w]; ok {
		return base, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if base, ok := s.wideSpaces()[w]; ok {
		return base, nil
	}
	ctx := context.Background() // the caller is a file system, which cannot be cancelled
	space, err := s.spaceLocked(ctx)
	if err != nil {
		return 0, err
	}
	err = s.store.Update(ctx, true, func(tx *chunkstore.Tx) error {
		return tx.Put(bucketWide, w.String(), strconv.AppendUint(nil, space, 10))
	})
	if err != nil {
		return 0, errclass.Mark(err)
	}
	s.points.At("further space of an upper recorded")
	s.putWide(func(m map[wideKey]uint64) { m[w] = space << SpaceBits })
	return space << SpaceBits, nil
}

// dropWide forgets the further spaces of an upper that is gone.
func (s *Set) dropWide(upper uint64) error {
	var keys []wideKey
	for w := range s.wideSpaces() {
		if w.upper == upper {
			keys = append(keys, w)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	err := s.store.Update(context.Background(), false, func(tx *chunkstore.Tx) error {
		for _, w := range keys {
			if err := tx.Delete(bucketWide, w.String()); err != nil {
				return err
			}
		}
		return nil
	})
	s.points.At("further spaces of an upper forgotten")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putWide(func(m map[wideKey]uint64) {
		for _, w := range keys {
			delete(m, w)
		}
	})
	return errclass.Mark(err)
}
