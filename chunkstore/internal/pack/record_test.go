package pack

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
	rec := AppendRecord(nil, &Record{
		Kind: Delta, Members: []Member{{700, 3000}}, Gen: 3, Bases: []uint64{12, 690}, Frame: sample.Noise(18, 50),
	})
	got, err := ParseRecord(rec)
	require.NoError(t, err)
	require.Equal(t, []uint64{12, 690}, got.Bases)
	for range 20_000 {
		bad := bytes.Clone(rec)
		bad[r.IntN(len(bad))] ^= byte(1 + r.IntN(255))
		_, err := ParseRecord(bad)
		require.ErrorIs(t, err, corrupt.Err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(AppendRecord(nil, &Record{Kind: Block, Members: []Member{{1, 2}, {9, 1}}, Frame: []byte("abc")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := ParseRecord(b); err == nil && r.RawSize() > MaxRaw {
			t.Errorf("%d bytes", r.RawSize())
		}
	})
}
