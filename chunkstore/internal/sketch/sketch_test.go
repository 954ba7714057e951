package sketch

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/sample"
)

func TestSketchSimilar(t *testing.T) {
	var x Index
	const n = 300
	docs := make([][]byte, n)
	for i := range docs {
		docs[i] = sample.Prose(int64(i), 3000+i*40)
		s, ok := Of(docs[i])
		require.True(t, ok)
		x.Add(uint64(i), s)
	}
	hits, wrong := 0, 0
	for i := range docs {
		s, ok := Of(sample.Edited(int64(1000+i), docs[i], 5))
		require.True(t, ok)
		if num, ok := x.Find(s, nil); ok {
			hits++
			if num != uint64(i) {
				wrong++
			}
		}
	}
	require.Greater(t, hits, n*95/100)
	require.Zero(t, wrong)
	for i := range 100 {
		s, ok := Of(sample.Noise(int64(i), 20_000))
		require.True(t, ok)
		_, ok = x.Find(s, nil)
		require.False(t, ok, "noise is like nothing")
	}
}

func TestSketchNone(t *testing.T) {
	_, ok := Of(sample.Noise(1, minSize-1))
	require.False(t, ok, "too short")
	_, ok = Of(make([]byte, 100_000))
	require.False(t, ok, "zeros")
}

func TestSketchUsable(t *testing.T) {
	var x Index
	a := Sketch{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
	b := a
	b[0], b[1], b[2], b[3] = 100, 101, 102, 103
	_, ok := x.Find(a, nil)
	require.False(t, ok)
	x.Add(1<<32-2, a)
	x.Add(5, b)
	x.Add(1<<32-1, Sketch{})
	_, ok = x.Find(Sketch{}, nil)
	require.False(t, ok, "a number beyond 32 bits")
	num, ok := x.Find(a, nil)
	require.True(t, ok)
	require.Equal(t, uint64(5), num, "most features in the newest slots")
	num, ok = x.Find(a, func(n uint64) bool { return n != 5 })
	require.True(t, ok)
	require.Equal(t, uint64(1<<32-2), num)
	_, ok = x.Find(a, func(uint64) bool { return false })
	require.False(t, ok)
	few := Sketch{0, 0, 0, 0, 5, 6}
	_, ok = x.Find(few, nil)
	require.False(t, ok, "two features are not enough")
}

func TestSketchSegment(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewSource(seed))
	var all []Entry
	for num := uint64(0); len(all) < 500; num += uint64(1 + r.Intn(300)) {
		c := Entry{Num: num}
		for k := range c.Sketch {
			c.Sketch[k] = uint16(r.Uint32())
		}
		all = append(all, c)
	}
	b := AppendSegment(nil, all)
	require.Less(t, len(b), len(all)*27)
	var got, want Index
	require.NoError(t, got.Load(b))
	for _, c := range all {
		want.Add(c.Num, c.Sketch)
	}
	require.Equal(t, want.slots, got.slots)
	require.NoError(t, got.Load(AppendSegment(nil, nil)))
	require.ErrorIs(t, got.Load(nil), corrupt.Err)
	require.ErrorIs(t, got.Load([]byte{9}), corrupt.Err)
	require.ErrorIs(t, got.Load(b[:len(b)-1]), corrupt.Err)
}

// TestWide: numbers beyond 32 bits are found as they are.
func TestWide(t *testing.T) {
	var x Index
	sketches := map[uint64]Sketch{}
	for i, num := range []uint64{1<<32 - 2, 1 << 32, 1<<32 + 7, 1<<40 - 2, 1<<40 + 9, 1<<40 + 1<<31} {
		var s Sketch
		for k := range s {
			s[k] = uint16(100*i + k)
		}
		sketches[num] = s
		x.Add(num, s)
		got, ok := x.Find(s, nil)
		require.True(t, ok)
		require.Equal(t, num, got)
	}
	got, ok := x.Find(sketches[1<<40+9], nil)
	require.True(t, ok)
	require.Equal(t, uint64(1<<40+9), got)
	_, ok = x.Find(sketches[1<<32], func(num uint64) bool { return num == 1<<32 })
	require.False(t, ok) // it is too far behind
}

func FuzzLoadSegment(f *testing.F) {
	f.Add(AppendSegment(nil, []Entry{{Num: 3}, {Num: 900}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var x Index
		if err := x.Load(b); err != nil {
			require.ErrorIs(t, err, corrupt.Err)
		}
	})
}

func BenchmarkSketch(b *testing.B) {
	data := sample.Prose(1, 64<<10)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, ok := Of(data); !ok {
			b.Fatal("no sketch")
		}
	}
}

func BenchmarkSketchFind(b *testing.B) {
	var x Index
	r := rand.New(rand.NewSource(1))
	var s Sketch
	for n := range uint64(200_000) {
		for k := range s {
			s[k] = uint16(r.Uint32())
		}
		x.Add(n, s)
	}
	for b.Loop() {
		x.Find(s, nil)
	}
}
