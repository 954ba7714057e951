package chunkstore

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// TestHeld holds that what readers of deleted manifests keep is counted, what several of them keep once, that a
// collection leaves just that, and that it counts no more when they are closed.
func TestHeld(t *testing.T) {
	rng := rand.New(rand.NewPCG(testseed.Of(t), 4))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	s := openTest(t, t.TempDir())
	kept, gone, other := noise(300<<10), noise(200<<10), noise(100<<10)
	ids := []ID{
		put(t, s, nil, part{"kept", kept, nil}).ID,
		put(t, s, nil, part{"kept", kept, nil}, part{"gone", gone, nil}).ID,
		put(t, s, nil, part{"gone", gone, nil}, part{"other", other, nil}).ID,
	}
	var readers []*Reader
	for _, id := range ids {
		r, err := s.OpenManifest(t.Context(), id)
		require.NoError(t, err)
		readers = append(readers, r)
	}
	held := func(sets ...[]ID) ([]int64, int64) {
		each, all, err := s.Held(t.Context(), sets...)
		require.NoError(t, err)
		return each, all
	}
	each, all := held(ids[:2], ids[2:])
	require.Equal(t, []int64{0, 0}, each, "manifests need it")
	require.Zero(t, all)

	deleteManifest(t, s, ids[1])
	deleteManifest(t, s, ids[2])
	before, err := s.Stats(t.Context())
	require.NoError(t, err)
	_, err = s.GC(t.Context(), nil)
	require.NoError(t, err)
	for range 2 {
		each, all = held(ids[:2], ids[2:], nil, []ID{12345})
		require.InDelta(t, len(gone), each[0], 30<<10)
		require.InDelta(t, len(gone)+len(other), each[1], 30<<10)
		require.Equal(t, []int64{0, 0}, each[2:])
		require.InDelta(t, len(gone)+len(other), all, 30<<10)
		after, err := s.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, before.Payload, after.Payload)
		require.InDelta(t, all, after.Garbage, 10<<10, "the collection leaves what is held")
	}
	for i, r := range readers {
		require.NoError(t, r.Close())
		if each, _ = held(ids[:2], ids[2:]); i == 1 {
			require.Zero(t, each[0])
			require.NotZero(t, each[1])
		}
	}
	_, all = held(ids)
	require.Zero(t, all)
}
