package goflate

import (
	"bytes"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDeflateWithin checks that pieces make the stream that the compressor makes of the whole, and the bound.
func TestDeflateWithin(t *testing.T) {
	for name, data := range inputs() {
		for level := BestSpeed; level <= BestCompression; level++ {
			var got, want bytes.Buffer
			require.NoError(t, DeflateWithin(&got, data, level, math.MaxInt))
			w, err := NewWriter(&want, level)
			require.NoError(t, err)
			_, err = w.Write(data)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			require.True(t, bytes.Equal(want.Bytes(), got.Bytes()), "%s at level %d", name, level)
		}
	}
	require.ErrorIs(t, DeflateWithin(io.Discard, inputs()["text"], BestCompression, 1000), ErrWork)
	require.NoError(t, DeflateWithin(io.Discard, inputs()["text"], BestCompression, 100<<20), "counted anew")
}
