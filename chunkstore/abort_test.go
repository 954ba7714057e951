package chunkstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/sample"
)

// TestAbortReturnsSpace aborts ingests, small and large, alone and beside another: their space is returned at once.
func TestAbortReturnsSpace(t *testing.T) {
	unraced(t)
	ctx := context.Background()
	r := rand.New(rand.NewPCG(90, 91))
	s := openTest(t, t.TempDir())
	kept := text(r, 300<<10)
	m := put(t, s, nil, part{"kept", kept, nil})
	before, err := s.Stats(ctx)
	require.NoError(t, err)
	failed := errors.New("no")
	for i := range 3 {
		in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		defer in.Abort()
		require.NoError(t, in.Hint(Hint{Path: "f", Size: 5 << 20}))
		_, err = in.Write(noise(r, 5<<20))
		require.NoError(t, err)
		if i == 2 {
			_, err = in.Commit(ctx, func(*Tx, Manifest) error { return failed })
			require.ErrorIs(t, err, failed)
		}
		if i == 1 {
			other := text(r, 100<<10)
			m := put(t, s, nil, part{"other", other, nil})
			in.Abort()
			require.True(t, bytes.Equal(other, readAll(t, s, m.ID)))
			deleteManifest(t, s, m.ID)
			_, err = s.GC(ctx, nil)
			require.NoError(t, err)
		}
		in.Abort()
		after, err := s.Stats(ctx)
		require.NoError(t, err)
		require.Equal(t, before.Payload, after.Payload, "round %d", i)
		require.LessOrEqual(t, after.Garbage, before.Payload/10, "round %d", i)
		require.Equal(t, before.Chunks, after.Chunks)
		require.True(t, bytes.Equal(kept, readAll(t, s, m.ID)))
	}

	// So many chunks that they go into the index before the commit.
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	chunk := make([]byte, 2000)
	for range 4 * batchMax {
		require.NoError(t, in.Hint(Hint{Path: "f", Size: 2000}))
		for i := 0; i < len(chunk); i += 8 {
			binary.LittleEndian.PutUint64(chunk[i:], r.Uint64())
		}
		_, err = in.Write(chunk)
		require.NoError(t, err)
	}
	mid, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Greater(t, mid.Chunks, before.Chunks)
	in.Abort()
	after, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, before.Payload, after.Payload)
	require.LessOrEqual(t, after.Garbage, before.Payload/10)
	require.Equal(t, before.Chunks, after.Chunks)
	require.True(t, bytes.Equal(kept, readAll(t, s, m.ID)))
}

// TestAbortFullDisk fills the disk by an ingest, which returns all the space that it took.
func TestAbortFullDisk(t *testing.T) {
	unraced(t)
	ctx := context.Background()
	mnt := sample.Disk(t, 160, "0")
	r := rand.New(rand.NewPCG(92, 93))
	s, err := Open(filepath.Join(mnt, "store"), Options{})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	kept := noise(r, 1<<20)
	m := put(t, s, nil, part{"kept", kept, nil})
	before, err := s.Stats(ctx)
	require.NoError(t, err)
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	require.NoError(t, in.Hint(Hint{Path: "big", Size: 1 << 30}))
	for err == nil {
		_, err = in.Write(noise(r, 1<<20))
	}
	in.Abort()
	require.ErrorIs(t, err, unix.ENOSPC)
	after, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Zero(t, after.Garbage)
	require.LessOrEqual(t, after.Packs, before.Packs)
	require.True(t, bytes.Equal(kept, readAll(t, s, m.ID)))
	again := noise(r, 8<<20)
	require.True(t, bytes.Equal(again, readAll(t, s, put(t, s, nil, part{"again", again, nil}).ID)))
	requireClean(t, s)
	require.NoError(t, s.Close())
}
