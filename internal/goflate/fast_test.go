package goflate

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// TestFastIsExact checks AppendFast against the frozen encoder.
func TestFastIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	all := inputs()
	for n := range 140 {
		all[fmt.Sprint(n)] = all["text"][n : 2*n]
		all[fmt.Sprint("block and ", n)] = all["mixed"][:FastBlock+n]
	}
	for i := range 60 {
		data := all["mixed"]
		lo := r.IntN(len(data))
		all[fmt.Sprint("part ", i)] = data[lo : lo+r.IntN(len(data)-lo)]
	}
	for name, data := range all {
		var want bytes.Buffer
		require.NoError(t, DeflateWithin(&want, data, BestSpeed, math.MaxInt))
		got, tail := AppendFast(nil, data, 0, 1, true)
		require.True(t, bytes.Equal(want.Bytes(), got), name)
		require.Equal(t, byte(1), tail)
	}
}

func BenchmarkFast(b *testing.B) {
	data := inputs()["text"]
	b.SetBytes(int64(len(data)))
	var out []byte
	for b.Loop() {
		out, _ = AppendFast(out[:0], data, 0, 1, true)
	}
}
