package chunkstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// tinyFiles stores n different files of 100 bytes, whose names are in another order than their contents are given.
func tinyFiles(t *testing.T, s *Store, n int, seed uint64, fn func(tx *Tx, m Manifest) error) Manifest {
	t.Helper()
	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	var data [100]byte
	for i := range n {
		for k := 0; k < len(data)-8; k += 8 {
			binary.LittleEndian.PutUint64(data[k:], seed<<40|uint64(i)<<8|uint64(k))
		}
		path := fmt.Sprintf("d%d/f%08x", i%100, uint32(i)*2654435761)
		require.NoError(t, in.Hint(Hint{Path: path, Size: int64(len(data))}))
		_, err := in.Write(data[:])
		require.NoError(t, err)
	}
	m, err := in.Commit(t.Context(), fn)
	require.NoError(t, err)
	return m
}

// TestTinyFiles stores, collects, checks and rebuilds so many tiny files that no step fits into one transaction.
func TestTinyFiles(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	s.limits = txnLimits{entries: 500, bytes: 64 << 10, all: 700, size: 100 << 10}
	txns := s.state.txns
	const files = 10_000
	a := tinyFiles(t, s, files, 1, func(tx *Tx, _ Manifest) error { return tx.Put("b", "k", []byte("v")) })
	require.Greater(t, s.state.txns-txns, uint64(files/500), "transactions are as small as the limits say")
	b := tinyFiles(t, s, files/2, 2, nil)
	wantA, wantB := readAll(t, s, a.ID), readAll(t, s, b.ID)
	requireClean(t, s)
	deleteManifest(t, s, a.ID)
	stats, err := s.GC(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, int64(files), stats.Chunks)
	require.Equal(t, wantB, readAll(t, s, b.ID))
	requireClean(t, s)
	require.NotEmpty(t, wantA)
	require.NoError(t, s.Close())
	_, err = RebuildIndex(ctx, dir, RebuildOptions{})
	require.NoError(t, err)
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	require.Equal(t, wantB, readAll(t, s, b.ID))
	requireClean(t, s)
}

// TestTinyFilesPages: each page of the index is written a few times only, however the blocks are sorted.
func TestTinyFilesPages(t *testing.T) {
	unraced(t)
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	require.Zero(t, s.guard.used)
	const files = 60_000
	tinyFiles(t, s, files, 3, nil)
	require.Less(t, s.guard.used, int64(files*130), "bytes written into the index")
}

func TestTxTooLarge(t *testing.T) {
	unraced(t)
	ctx := context.Background()
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	r := rand.New(rand.NewPCG(1, 2))
	value := noise(r, 100<<10)
	put := func(values int, value []byte) error {
		return s.Update(ctx, true, func(tx *Tx) error {
			for i := range values {
				if err := tx.Put("many", fmt.Sprintf("%08d", i), value); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, put(maxTxValues, nil))
	require.NoError(t, put(10, value))
	require.ErrorIs(t, put(maxTxValues+1, nil), ErrTxTooLarge)
	require.ErrorIs(t, put(11, value), ErrTxTooLarge)
	require.ErrorIs(t, put(1, noise(r, maxTxBytes)), ErrTxTooLarge)
	require.ErrorIs(t, s.Update(ctx, true, func(tx *Tx) error {
		for i := range maxTxValues + 1 {
			if err := tx.Delete("many", fmt.Sprintf("%08d", i)); err != nil {
				return err
			}
		}
		return nil
	}), ErrTxTooLarge)
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error {
		for i := range maxTxValues {
			require.True(t, tx.Room(1, 20))
			if err := tx.Delete("many", fmt.Sprintf("%08d", i)); err != nil {
				return err
			}
		}
		require.False(t, tx.Room(1, 20))
		return nil
	}))
	// As much as callers may write goes along with as many chunks as a commit leaves to the last transaction.
	for _, files := range []int{1, lastEntries / 2, lastEntries} {
		tinyFiles(t, s, files, uint64(10+files), func(tx *Tx, _ Manifest) error {
			for i := range maxTxValues {
				if err := tx.Put("more", fmt.Sprintf("%08d", i), value[:30]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	requireClean(t, s)
}
