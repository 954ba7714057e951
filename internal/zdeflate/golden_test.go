package zdeflate

import (
	"bytes"
	"compress/zlib"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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
	for len(text) < 300_000 {
		n := r.Intn(60)
		if at := r.Intn(len(text) + 1); r.Intn(3) > 0 && at+n < len(text) {
			text = append(text, text[at:at+n]...)
		}
		for range r.Intn(12) {
			text = append(text, byte('a'+r.Intn(26)))
		}
	}
	return map[string][]byte{
		"empty": nil, "byte": {7}, "two": {7, 7}, "three": {7, 7, 7}, "zeros": make([]byte, 300_000), "noise": noise,
		"text": text, "65535": text[:65535], "65536": text[:65536], "65274": text[:65274],
		"mixed": append(text[:100_000:100_000], noise...),
	}
}

// golden is a SHA-256 of what zlib writes for all inputs, by level.
var golden = map[int]string{
	1: "eec259a269fa0a150807e40b966b3085cbcd7092f6dec01f03bf8f301fb9843c",
	2: "5b21bbe96c26fd731c1019d30c4abee588484900fb1fc3efffbc7d6584df1c65",
	3: "3d615103fb4bae51ddf3d48b432298ff80bbc1e22fe57223c4ee34753c9b45d6",
	4: "0b306b2c58e6933a2faeea17f83e67152dfff8a95e8725494356fce5fe3610c0",
	5: "56a8ea6c245c1c7c4c68db4b78ee3400af19ced4b02d8b4e86e61e39602d2b64",
	6: "cb32a7d4549d16e53572a0f050f584a2784dceb712f1b7297e2fd8fe949d9bff",
	7: "00968cf89e9611ad9175e09bd60ff33cd54aeeef3fb0ef567f0b1fabdfaa53ee",
	8: "cdc657ccefd3d2c45107f3021c3242f0b1aa10e35f8fa64ac4b0be1d340b3b2e",
	9: "cdc657ccefd3d2c45107f3021c3242f0b1aa10e35f8fa64ac4b0be1d340b3b2e",
}

func TestGolden(t *testing.T) {
	names := []string{
		"empty", "byte", "two", "three", "zeros", "noise", "text", "65535", "65536", "65274", "mixed",
	}
	data := inputs()
	require.Len(t, names, len(data))
	for level := 1; level <= 9; level++ {
		sum := sha256.New()
		for _, name := range names {
			for _, p := range []Params{
				{level, 8, 15, Default}, {level, 9, 15, Filtered}, {level, 8, 15, Filtered}, {level, 1, 9, Default},
			} {
				var b bytes.Buffer
				require.NoError(t, Zlib(&b, data[name], p))
				_, _ = sum.Write(b.Bytes()) // cannot fail
				r, err := zlib.NewReader(&b)
				require.NoError(t, err)
				got, err := io.ReadAll(r)
				require.NoError(t, err)
				require.True(t, bytes.Equal(data[name], got), "%s, %+v", name, p)
			}
		}
		require.Equal(t, golden[level], hex.EncodeToString(sum.Sum(nil)), "level %d", level)
	}
}

type failAfter int

func (w *failAfter) Write(p []byte) (int, error) {
	if *w -= failAfter(len(p)); *w < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// TestDeflateEndsEarly checks that an error of the writer ends the work and is returned.
func TestDeflateEndsEarly(t *testing.T) {
	for level := 1; level <= 9; level++ {
		w := failAfter(40_000)
		err := Zlib(&w, inputs()["noise"], Params{Level: level, MemLevel: 8, WindowBits: 15})
		require.True(t, errors.Is(err, io.ErrShortWrite))
		require.Greater(t, int(w), -40_000, "level %d went on", level)
	}
}

func FuzzDeflate(f *testing.F) {
	f.Add([]byte("abcabcabc"), uint8(6), uint8(8), uint8(15), false)
	f.Add(bytes.Repeat([]byte("0123456789"), 400), uint8(1), uint8(1), uint8(9), true)
	f.Fuzz(func(t *testing.T, data []byte, level, mem, window uint8, filtered bool) {
		p := Params{Level: int(level), MemLevel: int(mem), WindowBits: int(window)}
		if filtered {
			p.Strategy = Filtered
		}
		if !p.Valid() {
			return
		}
		var b bytes.Buffer
		require.NoError(t, Zlib(&b, data, p))
		r, err := zlib.NewReader(&b)
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got))
	})
}

func BenchmarkZlib(b *testing.B) {
	data := inputs()["text"]
	for _, level := range []int{1, 6, 9} {
		b.Run(string(rune('0'+level)), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if err := Zlib(io.Discard, data, Params{Level: level, MemLevel: 8, WindowBits: 15}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestDeflateWithin checks that data that was made to be slow is given up.
func TestDeflateWithin(t *testing.T) {
	var slow []byte // equal hashes everywhere, and matches that all end early
	for i := range 1 << 14 {
		slow = append(slow, 'a', 'b', 'c', byte(i), byte(i>>7))
	}
	p := Params{Level: 9, MemLevel: 8, WindowBits: 15}
	require.ErrorIs(t, DeflateWithin(io.Discard, slow, p, 64*len(slow)), ErrWork)
	text := inputs()["text"]
	require.NoError(t, DeflateWithin(io.Discard, text, p, 64*len(text)))
}
