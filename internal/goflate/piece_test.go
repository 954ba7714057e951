package goflate

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPieces checks that pieces with some context are those of the stream.
func TestPieces(t *testing.T) {
	data := inputs()["text"]
	for level := 2; level <= BestCompression; level++ {
		var want bytes.Buffer
		require.NoError(t, DeflateWithin(&want, data, level, math.MaxInt))
		var got []byte
		pieces := 0
		for at, lead := 0, byte(1); at < len(data); pieces++ {
			context := at
			if level > 3 { // the others need not become the same again
				context = min(at, 2*PieceAlign+at%PieceAlign)
			}
			p := Piece{
				Level: level, Data: data[at-context:], Context: context, Last: true, Until: 50_000, Lead: lead,
				Work: math.MaxInt, Enough: math.MaxInt,
			}
			var used int
			var err error
			got, used, lead, err = p.Append(got)
			require.NoError(t, err)
			require.Positive(t, used)
			if at > 0 && at+used < len(data) {
				// The same with just what it needs.
				p.Data, p.Until, p.Last = p.Data[:context+used+512], used, false
				again, n, tail, err := p.Append(nil)
				require.NoError(t, err)
				require.Equal(t, used, n)
				require.Equal(t, lead, tail)
				require.True(t, bytes.HasSuffix(got, again))
			}
			at += used
		}
		require.Greater(t, pieces, 2)
		require.True(t, bytes.Equal(want.Bytes(), got), "level %d", level)
	}
}

// TestPieceBounds checks what makes no piece.
func TestPieceBounds(t *testing.T) {
	data := inputs()["text"]
	p := Piece{Level: 6, Data: data, Until: 50_000, Lead: 1, Work: 1000, Enough: 1000}
	_, _, _, err := p.Append(nil)
	require.ErrorIs(t, err, ErrWork)
	p = Piece{Level: 6, Data: data[:1000], Until: 50_000, Lead: 1, Work: math.MaxInt, Enough: math.MaxInt}
	_, _, _, err = p.Append(nil)
	require.ErrorIs(t, err, ErrCut, "the data ends")
	p = Piece{Level: 6, Data: make([]byte, 100_000), Context: 50_001, Last: true, Until: 1000, Lead: 1, Work: math.MaxInt}
	_, _, _, err = p.Append(nil)
	require.ErrorIs(t, err, ErrCut, "no match starts where it should")
}
