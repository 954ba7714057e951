package cdc

import (
	"bytes"
	"errors"
	"io"
	"math/rand"
	"testing"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"

	"snapfs/chunkstore/internal/sample"
)

// cutsOf cuts parts, written in pieces as piece says, and gives the chunks' lengths per part.
func cutsOf(t testing.TB, parts [][]byte, announce bool, piece func(left int) int) [][]int {
	t.Helper()
	var out [][]int
	var got, want bytes.Buffer
	cur := -1
	c := New(func(b []byte) error {
		got.Write(b)
		out[cur] = append(out[cur], len(b))
		return nil
	})
	for _, p := range parts {
		want.Write(p)
		size := int64(-1)
		if announce {
			size = int64(len(p))
		}
		require.NoError(t, c.Begin(size))
		out = append(out, nil)
		cur++
		for len(p) > 0 {
			n := piece(len(p))
			w, err := c.Write(p[:n])
			require.NoError(t, err)
			require.Equal(t, n, w)
			p = p[n:]
		}
	}
	require.NoError(t, c.Flush())
	require.True(t, bytes.Equal(want.Bytes(), got.Bytes()), "chunks do not spell the input")
	return out
}

func TestChunkerRules(t *testing.T) {
	all := func(left int) int { return left }
	cuts := cutsOf(t, [][]byte{
		sample.Noise(1, 10), nil, sample.Noise(2, WholePart-1), sample.Noise(3, WholePart), make([]byte, 3*MaxSize+5),
		sample.Noise(4, 4<<20),
	}, true, all)
	require.Equal(t, []int{10}, cuts[0])
	require.Empty(t, cuts[1])
	require.Equal(t, []int{WholePart - 1}, cuts[2])
	require.Greater(t, len(cuts[3]), 1, "a part of wholePart bytes is cut by content")
	require.Equal(t, []int{MaxSize, MaxSize, MaxSize, 5}, cuts[4], "no cut point in zeros")
	for i, n := range cuts[5] {
		require.LessOrEqual(t, n, MaxSize)
		if i < len(cuts[5])-1 {
			require.GreaterOrEqual(t, n, MinSize)
		}
	}
	mean := (4 << 20) / len(cuts[5])
	require.Greater(t, mean, 28<<10)
	require.Less(t, mean, 60<<10)
}

// TestChunkerPieces: the cuts are a function of the parts, not of how they are written, and are those of
// the library's own stream chunker.
func TestChunkerPieces(t *testing.T) {
	const seed = 20
	r := rand.New(rand.NewSource(seed))
	var parts [][]byte
	for range 40 {
		seed := r.Int63()
		most := []int{1, 200, WholePart, 3 * WholePart, 2 << 20}[r.Intn(5)]
		parts = append(parts, sample.Noise(seed, r.Intn(most)+r.Intn(2)))
	}
	want := cutsOf(t, parts, true, func(left int) int { return left })
	for _, max := range []int{5000, 70_000, 400_000, 3 << 20} {
		for _, announce := range []bool{false, true} {
			got := cutsOf(t, parts, announce, func(left int) int { return min(left, 1+r.Intn(max)) })
			require.Equal(t, want, got, "pieces up to %d, seed %d", max, seed)
		}
	}
	for i, p := range parts {
		if len(p) < WholePart {
			continue
		}
		lib, err := chunkers.NewChunker("fastcdc", bytes.NewReader(p),
			&chunkers.ChunkerOpts{MinSize: MinSize, NormalSize: NormalSize, MaxSize: MaxSize})
		require.NoError(t, err)
		var ref []int
		for {
			b, err := lib.Next()
			if len(b) > 0 {
				ref = append(ref, len(b))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
		}
		require.Equal(t, ref, want[i])
	}
}

func TestChunkerBeyondAnnounced(t *testing.T) {
	var got []int
	c := New(func(b []byte) error { got = append(got, len(b)); return nil })
	require.NoError(t, c.Begin(100))
	_, err := c.Write(make([]byte, 150))
	require.NoError(t, err)
	_, err = c.Write(make([]byte, 50))
	require.NoError(t, err)
	require.NoError(t, c.Flush())
	require.Equal(t, []int{100, 100}, got, "the surplus is a part of its own")
}

func TestChunkerEmitError(t *testing.T) {
	boom := errors.New("boom")
	c := New(func([]byte) error { return boom })
	_, err := c.Write(make([]byte, 2<<20))
	require.ErrorIs(t, err, boom)
	require.NoError(t, c.Begin(10), "what a failed chunk held is dropped")
	_, err = c.Write(make([]byte, 10))
	require.ErrorIs(t, err, boom)
}

func FuzzChunker(f *testing.F) {
	f.Add(int64(1), 300_000, 1000)
	f.Add(int64(2), WholePart, 1)
	f.Fuzz(func(t *testing.T, seed int64, size, piece int) {
		size, piece = max(0, size)%(1<<20), 1+max(0, piece)%(1<<19)
		p := sample.Noise(seed, size)
		want := cutsOf(t, [][]byte{p}, true, func(left int) int { return left })
		got := cutsOf(t, [][]byte{p}, false, func(left int) int { return min(left, max(piece, size/64)) })
		require.Equal(t, want, got)
	})
}

func BenchmarkChunkAndHash(b *testing.B) {
	for name, size := range map[string]int{"large": 64 << 20, "10KiB": 10 << 10} {
		b.Run(name, func(b *testing.B) {
			data := sample.Noise(1, 64<<20)
			b.SetBytes(int64(len(data)))
			c := New(func(p []byte) error { _ = blake3.Sum256(p); return nil })
			for b.Loop() {
				for p := data; len(p) > 0; p = p[min(size, len(p)):] {
					if err := c.Begin(int64(min(size, len(p)))); err != nil {
						b.Fatal(err)
					}
					if _, err := c.Write(p[:min(size, len(p))]); err != nil {
						b.Fatal(err)
					}
				}
				if err := c.Flush(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCut(b *testing.B) {
	data := sample.Noise(1, 64<<20)
	b.SetBytes(int64(len(data)))
	c := New(func([]byte) error { return nil })
	for b.Loop() {
		if _, err := c.Write(data); err != nil {
			b.Fatal(err)
		}
		if err := c.Flush(); err != nil {
			b.Fatal(err)
		}
	}
}
