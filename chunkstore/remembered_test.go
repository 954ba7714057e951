package chunkstore

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRemembered: what is remembered of space is what a new look gives, whatever was stored, deleted and collected since.
func TestRemembered(t *testing.T) {
	s := openTest(t, t.TempDir())
	r := rand.New(rand.NewPCG(7, 8))
	ids, _ := history(t, s, r, 8)
	same := func(what string, ids []ID) {
		t.Helper()
		usage := func() Usage {
			u, err := s.Usage(t.Context(), ids...)
			require.NoError(t, err)
			return u
		}
		unique := func() []int64 {
			u, err := s.Unique(t.Context(), [][]ID{ids[:1], ids[1:]})
			require.NoError(t, err)
			return u
		}
		u, n := usage(), unique()
		require.NotNil(t, s.remembered.Load(), what)
		require.Len(t, s.remembered.Load().usages, 1, what)
		s.remembered.Store(nil)
		require.Equal(t, usage(), u, what)
		require.Equal(t, unique(), n, what)
		s.remembered.Load().usages[questionOf(ids)] = Usage{Logical: 1} // only who remembers sees that
		require.EqualValues(t, 1, usage().Logical, what)
	}
	same("at first", ids[:3])
	more, _ := history(t, s, r, 2)
	same("after more was stored", ids[:3])
	deleteManifest(t, s, more...)
	same("after that was deleted", ids[:3])
	deleteManifest(t, s, ids[4:]...)
	same("after others were deleted", ids[:3])
	_, err := s.GC(t.Context(), nil)
	require.NoError(t, err)
	same("after a collection", ids[:3])
	_, err = s.Compact(t.Context(), nil)
	require.NoError(t, err)
	same("after a compaction", ids[:3])
	deleteManifest(t, s, ids[0])
	_, err = s.Usage(t.Context(), ids[:3]...)
	require.ErrorIs(t, err, ErrNotFound)
	for i := range 3 * mostRemembered {
		_, err := s.Unique(t.Context(), [][]ID{{ids[1]}, {ID(1000 + i)}})
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(s.remembered.Load().unique), mostRemembered)
}

// TestRememberedThousand tells what accounting for half of a thousand manifests takes, with $SNAPFS_LONG.
func TestRememberedThousand(t *testing.T) {
	if os.Getenv("SNAPFS_LONG") == "" {
		t.Skip("it only measures: SNAPFS_LONG")
	}
	s := openTest(t, t.TempDir())
	ids, _ := history(t, s, rand.New(rand.NewPCG(9, 10)), 1000)
	for _, anew := range []bool{true, false} {
		got := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				if anew {
					s.remembered.Store(nil)
				}
				if _, err := s.Usage(t.Context(), ids[:500]...); err != nil {
					b.Fatal(err)
				}
			}
		})
		t.Logf("anew %v: %v", anew, got)
	}
}
