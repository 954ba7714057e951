package chunkstore

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOptimize repacks a history while it is read, interrupted at first; the second time there is nothing to do.
func TestOptimize(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(50, 51))
	dir := t.TempDir()
	s := openTest(t, dir)
	ids, want := history(t, s, r, 8)
	before, err := s.Stats(ctx)
	require.NoError(t, err)
	reader, err := s.OpenManifest(ctx, ids[5])
	require.NoError(t, err)

	stopped, stop := context.WithCancel(ctx)
	_, err = s.Optimize(stopped, func(done, _ int64) {
		if done == 9 {
			stop()
		}
	})
	require.True(t, errors.Is(err, context.Canceled), "%v", err)
	require.NotZero(t, s.Unoptimized())
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, s.Unoptimized())
	after, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Less(t, after.Payload, before.Payload)
	require.Less(t, after.Packs, before.Packs+before.Payload/2) // the originals are gone

	var b bytes.Buffer
	_, err = reader.WriteTo(&b)
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	require.True(t, bytes.Equal(want[5], b.Bytes()))
	requireClean(t, s)
	st, err := s.Optimize(ctx, nil)
	require.NoError(t, err)
	require.Zero(t, st.Rewritten)

	// Later additions are repacked separately.
	more, wantMore := history(t, s, r, 3)
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s = openTest(t, dir)
	for i, id := range append(ids, more...) {
		require.True(t, bytes.Equal(append(want, wantMore...)[i], readAll(t, s, id)))
	}
}
