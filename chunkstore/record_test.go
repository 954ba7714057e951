package chunkstore

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/sample"
)

// TestBadRecords feeds damaged records to their parser.
func TestBadRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 19))
	rec := appendRecord(nil, &record{
		kind: recDelta, members: []member{{700, 3000}}, gen: 3, bases: []uint64{12, 690}, frame: sample.Noise(18, 50),
	})
	got, err := parseRecord(rec)
	require.NoError(t, err)
	require.Equal(t, []uint64{12, 690}, got.bases)
	for range 20_000 {
		bad := bytes.Clone(rec)
		bad[r.IntN(len(bad))] ^= byte(1 + r.IntN(255))
		_, err := parseRecord(bad)
		require.ErrorIs(t, err, corrupt.Err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(appendRecord(nil, &record{kind: recBlock, members: []member{{1, 2}, {9, 1}}, frame: []byte("abc")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseRecord(b); err == nil && r.raw() > maxRaw {
			t.Errorf("%d bytes", r.raw())
		}
	})
}
