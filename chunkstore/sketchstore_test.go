package chunkstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sketch"
)

// TestSketchesPersist stores something similar to what an earlier process stored, without saying so.
func TestSketchesPersist(t *testing.T) {
	r := rand.New(rand.NewPCG(40, 41))
	dir := t.TempDir()
	s := openTest(t, dir)
	data := text(r, 50_000)
	first := put(t, s, nil, part{"a", data, nil})
	alone, err := s.Stats(context.Background())
	require.NoError(t, err)
	require.NoError(t, s.Close())

	s = openTest(t, dir)
	like := bytes.Clone(data)
	copy(like[20_000:], "an edit")
	m := put(t, s, nil, part{"elsewhere", like, nil})
	require.Equal(t, like, readAll(t, s, m.ID))
	st, err := s.Stats(context.Background())
	require.NoError(t, err)
	require.Less(t, st.Payload, alone.Payload+2000)

	// They go with their chunks.
	deleteManifest(t, s, first.ID, m.ID)
	_, err = s.GC(context.Background(), nil)
	require.NoError(t, err)
	require.NoError(t, s.eachSketches(func([]byte, []byte) bool {
		t.Error("sketches are left")
		return false
	}))
}

// TestNoSketchesOfNoise stores what does not compress: its sketches would be a large part of the index.
func TestNoSketchesOfNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(42, 43))
	s := openTest(t, t.TempDir())
	put(t, s, nil, part{"a.bin", noise(r, 2_000_000), nil})
	count := func() (n int) {
		require.NoError(t, s.eachSketches(func(_, value []byte) bool {
			n += sketch.Count(value)
			return true
		}))
		return n
	}
	require.Zero(t, count())
	put(t, s, nil, part{"b.txt", text(r, 100_000), nil})
	require.NotZero(t, count())
}
