package chunkstore

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// TestRadix follows the bases of generations: as many deltas as depth says, down to 0.
func TestRadix(t *testing.T) {
	for _, r := range []radix{smallRadix, largeRadix} {
		for gen := range 5000 {
			n := 0
			for g := gen; g > 0; g = r.base(g) {
				require.Less(t, r.base(g), g)
				n++
			}
			require.Equal(t, r.depth(gen), n, "generation %d of radix %d", gen, r)
		}
	}
}

// TestLongLog appends to a file in many versions: each takes about as much as was appended, however many there are, and
// all chains are short.
func TestLongLog(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 1))
	s := openTest(t, t.TempDir())
	var ids []ID
	var want [][]byte
	log, appended := text(r, 20_000), 0
	var prev []Range
	for range 120 {
		more := text(r, 200)
		log = append(bytes.Clone(log), more...)
		appended += len(more)
		m := put(t, s, nil, part{"log", log, prev})
		prev = []Range{{Manifest: m.ID, Len: int64(len(log))}}
		ids, want = append(ids, m.ID), append(want, log)
	}
	st, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.Less(t, st.Payload, int64(20_000+3*appended))
	_, err = s.Optimize(t.Context(), nil)
	require.NoError(t, err)
	for i, id := range ids {
		require.Equal(t, want[i], readAll(t, s, id))
	}
	requireClean(t, s)
}
