package goflate

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// inputs cover literals, matches, stored blocks, several blocks and the window's edges.
func inputs() map[string][]byte {
	r := rand.New(rand.NewSource(1))
	noise := make([]byte, 200_000)
	for i := range noise {
		noise[i] = byte(r.Int63())
	}
	var text []byte
	for len(text) < 700_000 {
		n := r.Intn(60)
		if at := r.Intn(len(text) + 1); r.Intn(3) > 0 && at+n < len(text) {
			text = append(text, text[at:at+n]...)
		}
		for range r.Intn(12) {
			text = append(text, byte('a'+r.Intn(26)))
		}
	}
	return map[string][]byte{
		"empty": nil, "byte": {7}, "zeros": make([]byte, 300_000), "noise": noise, "text": text,
		"65535": text[:65535], "65536": text[:65536], "mixed": append(text[:100_000:100_000], noise...),
	}
}

// golden are SHA-256 digests of what compress/zlib of Go 1.26.8 writes at level 1.
var golden = map[string]string{
	"65535": "c6e0385c14ce6effbbfb0f0f74fd01978c45ac1073ac11aa94adf5fa680ebaff",
	"65536": "6a1e64f9c57cefa1db5d3b26f0af245638b7687b0e4ea7d1ef7e97818147c2e3",
	"byte":  "6c673e75cee34168b42c538f52edfcb78753b5cfbb2cbf6c13a48ee6a17d76cd",
	"empty": "b8f45bcbd81d3edbe2fe2eaddfe03209b3dd10924cb291d4b79a47d63bb8cef9",
	"mixed": "abd7657e1f23e2589cde4b03eba97814127fec918f40fd12eaa4998eb6d2e364",
	"noise": "e3fafe504c06a63fc315262bf6e0fbfc3140763085ce9b01f7c698ba7227fe6d",
	"text":  "dac3be1bb0d22cf517364bd9c0ad507a4a5863172d0f8e8ea9033671ac0e622d",
	"zeros": "9c159a489a52d7aaa3884b638d15d7d1f28ab67b1bf3db90199067d51a45a2f4",
}

func TestGolden(t *testing.T) {
	for name, data := range inputs() {
		var b bytes.Buffer
		require.NoError(t, Zlib(&b, data))
		sum := sha256.Sum256(b.Bytes())
		require.Equal(t, golden[name], hex.EncodeToString(sum[:]), name)
		r, err := zlib.NewReader(&b)
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got), name)
	}
}

func BenchmarkZlib(b *testing.B) {
	data := inputs()["text"]
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := Zlib(io.Discard, data); err != nil {
			b.Fatal(err)
		}
	}
}
