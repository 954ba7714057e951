package chunkstore

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
)

// mostRemembered bounds the answers about space that are kept, of each kind.
const mostRemembered = 64

// accounted changes with what manifests there are, and with where their chunks are. What other packages commit does not
// change it.
type accounted struct {
	changes                   uint64 // as of liveSet; a transaction counts it before it is committed, and the rest then
	next                      ID
	dropped, collected, moved uint64
	manifests, chunks         int64
}

// accounted is what the store has now.
func (s *Store) accounted() accounted {
	s.writeMu.Lock()
	st := s.state
	s.writeMu.Unlock()
	return accounted{
		s.liveSet.changes.Load(), st.nextID, st.dropped, st.collected, st.moved, st.manifests, st.chunks,
	}
}

// question names what was asked: the sets of manifests, in their order.
type question [sha256.Size]byte

func questionOf(sets ...[]ID) question {
	var text []byte
	for _, set := range sets {
		text = binary.AppendUvarint(text, uint64(len(set)))
		for _, id := range set {
			text = binary.AppendUvarint(text, uint64(id))
		}
	}
	return sha256.Sum256(text)
}

// remembered are answers about space at one time: each needs a look at all manifests. Immutable.
type remembered struct {
	in     accounted
	usages map[question]Usage
	unique map[question][]int64
}

// recall gives what is remembered of a time; nil maps if nothing is.
func (s *Store) recall(in accounted) remembered {
	if r := s.remembered.Load(); r != nil && r.in == in {
		return *r
	}
	return remembered{in: in}
}

// remember keeps an answer that was begun then, unless something has changed since. Of two at the same time one may be lost.
func (s *Store) remember(in accounted, q question, usage *Usage, unique []int64) {
	if s.accounted() != in {
		return
	}
	r := s.recall(in)
	if usage != nil {
		r.usages = with(r.usages, q, *usage)
	} else {
		r.unique = with(r.unique, q, unique)
	}
	s.remembered.Store(&r)
}

// with is a copy of a map with one more value, and without the others if there are too many.
func with[V any](m map[question]V, q question, v V) map[question]V {
	if len(m) >= mostRemembered {
		m = nil
	}
	if m = maps.Clone(m); m == nil {
		m = map[question]V{}
	}
	m[q] = v
	return m
}

// rememberedUnique is what Unique gave for the same sets.
func (s *Store) rememberedUnique(in accounted, q question) ([]int64, bool) {
	unique, ok := s.recall(in).unique[q]
	return slices.Clone(unique), ok
}
