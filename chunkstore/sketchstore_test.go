package chunkstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSketchesPersist stores something similar to what an earlier process stored, without saying so.
func TestSketchesPersist(t *testing.T) {
	r := rand.New(rand.NewPCG(40, 41))
	dir := t.TempDir()
	s := openTest(t, dir)
	data := noise(r, 50_000)
	first := put(t, s, nil, part{"a", data, nil})
	require.NoError(t, s.Close())

	s = openTest(t, dir)
	like := bytes.Clone(data)
	copy(like[20_000:], "an edit")
	m := put(t, s, nil, part{"elsewhere", like, nil})
	require.Equal(t, like, readAll(t, s, m.ID))
	st, err := s.Stats(context.Background())
	require.NoError(t, err)
	require.Less(t, st.Payload, int64(52_000))

	// They go with their chunks.
	deleteManifest(t, s, first.ID, m.ID)
	_, err = s.GC(context.Background(), nil)
	require.NoError(t, err)
	require.NoError(t, s.eachSketches(func([]byte, []byte) bool {
		t.Error("sketches are left")
		return false
	}))
}
