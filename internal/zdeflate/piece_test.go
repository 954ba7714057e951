package zdeflate

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// text is data with matches near and far.
func text(r *rand.Rand, n int) []byte {
	var b []byte
	for len(b) < n {
		if k := r.IntN(60); len(b) > 0 && r.IntN(3) > 0 {
			at := max(0, len(b)-1-r.IntN(40_000))
			b = append(b, b[at:min(len(b), at+k)]...)
		}
		for range r.IntN(12) {
			b = append(b, byte('a'+r.IntN(26)))
		}
	}
	return b[:n]
}

// TestPieces checks that pieces with some context are those of the stream.
func TestPieces(t *testing.T) {
	data := text(rand.New(rand.NewPCG(testseed.Of(t), 0)), 700_000)
	for level := 1; level <= 9; level++ {
		params := Params{Level: level, MemLevel: 8, WindowBits: 15 - level%3}
		var want bytes.Buffer
		require.NoError(t, Deflate(&want, data, params))
		var got []byte
		pieces := 0
		for at, lead := 0, byte(1); at < len(data); pieces++ {
			context := at
			if level > lastGreedy { // the others need not become the same again
				context = min(at, 70_000)
			}
			p := Piece{
				Params: params, Data: data[at-context:], Offset: at - context, Context: context, Last: true,
				Until: 50_000, Lead: lead, Work: math.MaxInt, Enough: math.MaxInt,
			}
			var used int
			var err error
			got, used, lead, err = p.Append(got)
			require.NoError(t, err)
			require.Positive(t, used)
			if end := context + used; at > 0 && at+used < len(data)-Lookahead {
				// The same with just what it needs.
				p.Data, p.Until, p.Last = p.Data[:end+Lookahead], used, false
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
	params := Params{Level: 6, MemLevel: 8, WindowBits: 15}
	data := text(rand.New(rand.NewPCG(1, 0)), 200_000)
	p := Piece{Params: params, Data: data, Until: 50_000, Lead: 1, Work: 1000, Enough: 1000}
	_, _, _, err := p.Append(nil)
	require.ErrorIs(t, err, ErrWork)
	p = Piece{Params: params, Data: data[:1000], Until: 50_000, Lead: 1, Work: math.MaxInt, Enough: math.MaxInt}
	_, _, _, err = p.Append(nil)
	require.ErrorIs(t, err, ErrCut, "the data ends")
	p = Piece{
		Params: params, Data: make([]byte, 100_000), Context: 50_001, Last: true, Until: 1000, Lead: 1,
		Work: math.MaxInt,
	}
	_, _, _, err = p.Append(nil)
	require.ErrorIs(t, err, ErrCut, "no match starts where it should")
}
