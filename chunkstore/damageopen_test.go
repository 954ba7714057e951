package chunkstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDamagedWhileOpen damages a table of the index while the store is open: merging the tables would lose what it
// holds. It is refused with ErrIndex, what can be read stays so, and a rebuild brings all back.
func TestDamagedWhileOpen(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(110, 111))
	dir := filepath.Join(t.TempDir(), "s")
	ids, want, recs := busyStore(t, dir, r)
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	tables, err := filepath.Glob(filepath.Join(dir, indexName, "*.sst"))
	require.NoError(t, err)
	require.Len(t, tables, 1)
	flip(t, tables[0], 40)
	recs["more"] = "x"
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error { return tx.Put("names", "more", []byte("x")) }))
	require.ErrorIs(t, s.shrinkIndex(ctx), ErrIndex)
	require.ErrorIs(t, s.Update(ctx, true, func(tx *Tx) error { return tx.Put("names", "no", []byte("x")) }), ErrIndex)
	good, bad := readable(t, s, ids, want)
	require.Len(t, append(good, bad...), len(ids))
	_, err = s.OpenManifest(ctx, slices.Max(ids)+1000)
	require.ErrorIs(t, err, ErrIndex, "what is missing may have been in the damaged table")
	err = s.View(ctx, func(tx *Tx) error { _, err := tx.Get("names", "none"); return err })
	require.ErrorIs(t, err, ErrIndex)
	require.ErrorIs(t, s.Close(), ErrIndex)

	res, err := RebuildIndex(ctx, dir, RebuildOptions{})
	require.NoError(t, err)
	require.Empty(t, res.Problems)
	requireRebuilt(t, dir, ids, want, recs)
}

// TestManyTables writes so much that Badger's tables are merged while the store is open. A transaction is done
// meanwhile.
func TestManyTables(t *testing.T) {
	unraced(t)
	ctx := context.Background()
	dir := t.TempDir()
	var s *Store
	listen, times := beside(t, &s, "tables verified")
	s, err := Open(dir, Options{Points: listen})
	require.NoError(t, err)
	value := make([]byte, 900<<10)
	n := 0
	for merged := false; !merged; n++ {
		require.NoError(t, s.Update(ctx, true, func(tx *Tx) error { return tx.Put("b", fmt.Sprint(n), value) }))
		merged = s.db.Levels()[6].NumTables > 0
		require.Less(t, n, 300)
	}
	t.Log(n, "values")
	awaitUpkeep(t, s)
	require.Equal(t, 1, *times)
	require.Len(t, records(t, s, "b"), n)
	require.NoError(t, s.Close())
	s = openTest(t, dir)
	require.Len(t, records(t, s, "b"), n)
}
