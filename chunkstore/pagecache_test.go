package chunkstore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLocateCommitted: what a manifest names is found, also between the commit of the transaction and its end,
// and if the cache still has their page as it was before.
func TestLocateCommitted(t *testing.T) {
	var s *Store
	var next uint64 // number of the chunk to come; 0 = none
	points := 0
	s, err := Open(t.TempDir(), Options{Points: func(point string) {
		if next == 0 || point != "transaction written" {
			return
		}
		points++
		_, _, err := s.locate(next)
		require.NoError(t, err, "between commit and end")
	}})
	require.NoError(t, err)
	first, err := s.manifest(put(t, s, nil, part{"file", []byte("first"), nil}).ID)
	require.NoError(t, err)
	no, i := pageOf(first.runs[0].first)
	before, err := s.page(no)
	require.NoError(t, err)
	require.NotNil(t, before.slots[i].rec)
	require.Nil(t, before.slots[i+1].rec)

	next = first.runs[0].first + 1
	second, err := s.manifest(put(t, s, nil, part{"file", []byte("second"), nil}).ID)
	require.NoError(t, err)
	require.Equal(t, next, second.runs[0].first, "numbers are given in order")
	require.NotZero(t, points)

	_, epoch, _ := s.pages.get(no)
	s.pages.put(no, before, before.cost(), epoch)
	_, _, err = s.locate(next)
	require.NoError(t, err, "with an old page in the cache")
	_, _, err = s.locate(next + 1)
	require.ErrorIs(t, err, errNoChunk)
	next = 0
	s.pages.clear()
	requireClean(t, s)
	require.NoError(t, s.Close())
}
