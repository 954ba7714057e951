package pack

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sample"
)

// TestPunch makes holes: their space comes back, the records beside them stay, and a scan passes over them.
func TestPunch(t *testing.T) {
	dir := filepath.Join(sample.Disk(t, 64, "0"), "packs") // of a kind that makes holes
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := openSet(t, dir, nil, false)
	var hold Holds
	var at []Location
	for i := range 40 {
		loc, err := s.Append(stored(uint64(i), 4000+i*50), &hold)
		require.NoError(t, err)
		at = append(at, loc)
	}
	require.NoError(t, s.Sync())
	require.Empty(t, s.Settled(), "a writer holds the pack")
	s.Named(1, at[39].End())
	require.False(t, s.Drop(&hold, nil))
	full := s.Occupied()[1]
	require.Equal(t, s.Settled()[1]-HeaderSize, full)

	// Records 5 to 9 are dead.
	holes := Holes{Spans: []Span{{at[5].Off, at[9].End()}}, Mark: 7}
	require.False(t, s.Punched(1, 7))
	require.NoError(t, s.Punch(1, holes))
	freed := at[9].End()/PageSize*PageSize - (at[5].Off+PageSize-1)/PageSize*PageSize
	left := s.Occupied()[1]
	require.InDelta(t, full-freed, left, 2*PageSize, "the file system may need a block for the map of the file")
	require.True(t, s.Punched(1, 7))
	require.False(t, s.Punched(1, 8))
	require.NoError(t, s.Punch(1, holes), "again")
	require.Equal(t, left, s.Occupied()[1])
	dead := map[int]bool{5: true, 6: true, 7: true, 8: true, 9: true}
	for i, loc := range at {
		if _, err := s.Read(loc); !dead[i] {
			require.NoError(t, err, "record %d", i)
		} else {
			require.Error(t, err, "record %d", i)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, Name(1)))
	require.NoError(t, err)
	var found []uint64
	Scan(b[:at[39].End()], func(_ int64, r *Record, sure bool) {
		require.True(t, sure)
		found = append(found, r.Members[0].Num)
	}, func(off, n int64) {
		require.Equal(t, Span{at[5].Off, at[9].End()}, Span{off, off + n})
		require.True(t, HasHole(b, off, n), fmt.Sprint(off, n))
	})
	require.Len(t, found, 35)
	require.False(t, HasHole(b, at[0].Off, at[5].Off-at[0].Off))
}

// TestScanZeros: a checksum that begins with zeros is found behind a hole.
func TestScanZeros(t *testing.T) {
	rec := stored(1, 100)
	for n := range 1 << 26 { // until the checksum begins with a zero
		if rec = stored(uint64(n), 100); rec[0] == 0 {
			break
		}
	}
	require.Zero(t, rec[0])
	b := append(make([]byte, HeaderSize+3*PageSize), rec...)
	n := 0
	Scan(b, func(_ int64, _ *Record, sure bool) {
		require.True(t, sure)
		n++
	}, func(int64, int64) {})
	require.Equal(t, 1, n)
}
