package prefix

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sample"
)

// TestChoose chooses what parts have in common, most of all what many have, and nothing else.
func TestChoose(t *testing.T) {
	often, twice := sample.Noise(1, 20<<10), sample.Noise(2, 20<<10)
	var parts [][]byte
	for i := range 12 {
		parts = append(parts, sample.Noise(int64(10+i), 100<<10), often)
		if i == 1 || i == 10 {
			parts = append(parts, twice)
		}
	}
	got := Choose(parts, 1<<20)
	require.Less(t, len(got), 45<<10)
	require.Greater(t, common(got, often), 18<<10)
	require.Greater(t, common(got, twice), 15<<10)
	require.Equal(t, got, Choose(parts, 1<<20))
	few := Choose(parts, 16<<10)
	require.LessOrEqual(t, len(few), 16<<10)
	require.Greater(t, common(few, often), 14<<10)
}

// common counts the bytes of a in whole pieces that b has.
func common(a, b []byte) int {
	n := 0
	for off := 0; off+256 <= len(a); off += 256 {
		if bytes.Contains(b, a[off:off+256]) {
			n += 256
		}
	}
	return n
}

// TestChooseNothing: what repeats only near itself, or not at all, or is too short to say, gives no prefix.
func TestChooseNothing(t *testing.T) {
	piece := sample.Noise(3, 5000)
	for name, parts := range map[string][][]byte{
		"none":  nil,
		"empty": {nil, {}},
		"short": {[]byte("a"), []byte("a"), make([]byte, anchorLen-1)},
		"near":  {piece, piece, piece},
		"noise": {sample.Noise(4, 3<<20)},
		"zeros": {make([]byte, pieceLen/2), sample.Noise(5, 1<<20), make([]byte, pieceLen/2)},
	} {
		require.Empty(t, Choose(parts, 1<<20), name)
	}
}

func FuzzChoose(f *testing.F) {
	f.Add([]byte("some bytes"), 3, 100)
	f.Fuzz(func(t *testing.T, b []byte, cut, limit int) {
		cut, limit = max(1, cut&0xFFFF), limit&0xFFFFF
		var parts [][]byte
		for range 5 {
			for at := 0; at < len(b); at += cut {
				parts = append(parts, b[at:min(at+cut, len(b))])
			}
			parts = append(parts, make([]byte, windowLen/2))
		}
		if got := Choose(parts, limit); len(got) > limit {
			t.Errorf("%d bytes, at most %d are wanted", len(got), limit)
		}
	})
}

// TestAnchorsBounded: what has an anchor at each byte takes no more memory than other data may.
func TestAnchorsBounded(t *testing.T) {
	zeros := make([]byte, 1<<20)
	require.LessOrEqual(t, len((&chooser{}).cut([][]byte{zeros, zeros})), len(zeros)/4)
	require.Empty(t, Choose([][]byte{zeros}, 1<<20))
}
