package chunkstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/pack"
)

// records returns all values of a bucket.
func records(t *testing.T, s *Store, bucket string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, s.View(context.Background(), func(tx *Tx) error {
		return tx.Scan(bucket, "", func(k string, v []byte) (bool, error) {
			all[k] = string(v)
			return true, nil
		})
	}))
	return all
}

// busyStore makes a store with a history: manifests and records stored and deleted, a collection, a repack, big
// manifests.
func busyStore(t *testing.T, dir string, r *rand.Rand) (ids []ID, want [][]byte, recs map[string]string) {
	t.Helper()
	ctx := context.Background()
	s := openTest(t, dir)
	ids, want = history(t, s, r, 6)
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error {
		for i := range 50 {
			if err := tx.Put("names", fmt.Sprint(i), text(r, 300)); err != nil {
				return err
			}
		}
		return nil
	}))
	deleteManifest(t, s, ids[1], ids[2])
	ids, want = append(ids[:1:1], ids[3:]...), append(want[:1:1], want[3:]...)
	_, err := s.GC(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	s = openTest(t, dir)
	more, wantMore := history(t, s, r, 3)
	_, err = s.Optimize(ctx, nil)
	require.NoError(t, err)
	ids, want = append(ids, more...), append(want, wantMore...)
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error {
		for i := range 10 {
			if err := tx.Delete("names", fmt.Sprint(i*3)); err != nil {
				return err
			}
		}
		return tx.Put("names", "7", []byte("anew"))
	}))
	deleteManifest(t, s, ids[len(ids)-1])
	ids, want = ids[:len(ids)-1], want[:len(want)-1]
	recs = records(t, s, "names")
	require.NoError(t, s.Close())
	return ids, want, recs
}

// requireRebuilt opens a rebuilt store, in which everything must be there, and nothing else.
func requireRebuilt(t *testing.T, dir string, ids []ID, want [][]byte, recs map[string]string) {
	t.Helper()
	ctx := context.Background()
	s := openTest(t, dir)
	requireClean(t, s)
	list, err := s.Manifests(ctx)
	require.NoError(t, err)
	require.Len(t, list, len(ids))
	for i, id := range ids {
		require.True(t, bytes.Equal(want[i], readAll(t, s, id)), "manifest %d", id)
	}
	require.Equal(t, recs, records(t, s, "names"))
	before, err := s.Stats(ctx)
	require.NoError(t, err)
	m := put(t, s, nil, part{"again", want[0], nil})
	require.NotContains(t, ids, m.ID)
	after, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Less(t, after.Payload-before.Payload, before.Payload/10+2000, "contents are not found again")
	require.NoError(t, s.Close())
	_, err = os.Stat(filepath.Join(dir, oldIndexName))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestRebuildIndex takes away, cuts short and damages each file of the index in turn, of a closed store and of one
// whose process was killed, and rebuilds it.
func TestRebuildIndex(t *testing.T) {
	unraced(t)
	ctx := context.Background()
	r := rand.New(rand.NewPCG(70, 71))
	base := t.TempDir()
	closed := filepath.Join(base, "closed")
	ids, want, recs := busyStore(t, closed, r)
	s, err := Open(closed, Options{})
	require.NoError(t, err)
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error { return tx.Put("names", "open", []byte("x")) }))
	killed := filepath.Join(base, "killed")
	require.NoError(t, os.CopyFS(killed, os.DirFS(closed)))
	require.NoError(t, s.Update(ctx, true, func(tx *Tx) error { return tx.Delete("names", "open") }))
	require.NoError(t, s.Close())
	n := 0
	for _, from := range []string{closed, killed} {
		recs := withOpen(recs, from == killed)
		files, err := filepath.Glob(filepath.Join(from, indexName, "*"))
		require.NoError(t, err)
		for _, path := range append(files, filepath.Join(from, indexName)) {
			fi, err := os.Stat(path)
			require.NoError(t, err)
			name, err := filepath.Rel(from, path)
			require.NoError(t, err)
			damages := map[string]func(path string) error{"gone": os.RemoveAll}
			if !fi.IsDir() && fi.Size() > 0 {
				damages["cut"] = func(path string) error { return os.Truncate(path, fi.Size()/2) }
				damages["rot"] = func(path string) error { flip(t, path, r.Int64N(fi.Size())); return nil }
			}
			for what, damage := range damages {
				n++
				dir := filepath.Join(base, fmt.Sprint(n))
				require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
				require.NoError(t, damage(filepath.Join(dir, name)))
				res, err := RebuildIndex(ctx, dir, RebuildOptions{})
				require.NoError(t, err, "%s %s", name, what)
				require.Empty(t, res.Problems, "%s %s", name, what)
				require.EqualValues(t, len(ids), res.Manifests)
				requireRebuilt(t, dir, ids, want, recs)
				require.NoError(t, os.RemoveAll(dir))
			}
		}
	}
	t.Log(n, "rebuilt")
}

// withOpen adds the record that only the killed store has.
func withOpen(recs map[string]string, killed bool) map[string]string {
	all := maps.Clone(recs)
	if killed {
		all["open"] = "x"
	}
	return all
}

// TestRebuildDamaged damages packs or journal, too: what is lost is told, the rest is there.
func TestRebuildDamaged(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(72, 73))
	base := t.TempDir()
	from := filepath.Join(base, "whole")
	ids, want, recs := busyStore(t, from, r)
	packFiles, err := filepath.Glob(filepath.Join(from, packsName, "*"+pack.Ext))
	require.NoError(t, err)
	journalFiles, err := filepath.Glob(filepath.Join(from, packsName, "*"+journalExt))
	require.NoError(t, err)
	require.Len(t, journalFiles, 1)
	lost := 0
	for i := range 10 {
		dir := filepath.Join(base, fmt.Sprint(i))
		require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
		require.NoError(t, os.RemoveAll(filepath.Join(dir, indexName)))
		path := packFiles[r.IntN(len(packFiles))]
		if i >= 8 {
			path = journalFiles[0]
		}
		fi, err := os.Stat(path)
		require.NoError(t, err)
		flip(t, filepath.Join(dir, packsName, filepath.Base(path)), pack.HeaderSize+r.Int64N(fi.Size()-pack.HeaderSize))
		res, err := RebuildIndex(ctx, dir, RebuildOptions{})
		if i >= 8 {
			// All or most of the journal is one entry.
			require.True(t, err == nil && len(res.Problems) > 0 || errors.Is(err, ErrCorrupt), "%v", err)
			continue
		}
		require.NoError(t, err)
		s, err := Open(dir, Options{})
		require.NoError(t, err)
		good, bad := readable(t, s, ids, want)
		if len(bad) > 0 || len(good) < len(ids) {
			lost++
			require.NotEmpty(t, res.Problems)
			require.DirExists(t, res.Old)
			require.Equal(t, bad, res.Problems[0].Manifests)
		}
		require.Equal(t, recs, records(t, s, "names"))
		require.NoError(t, s.Close())
	}
	require.NotZero(t, lost)

	// Without a journal it is unknown what the packs hold: nothing is changed.
	require.NoError(t, os.Remove(journalFiles[0]))
	require.NoError(t, os.RemoveAll(filepath.Join(from, indexName)))
	_, err = RebuildIndex(ctx, from, RebuildOptions{})
	require.ErrorIs(t, err, ErrCorrupt)
	_, err = Open(from, Options{})
	require.ErrorIs(t, err, ErrIndex)
	for _, path := range packFiles {
		require.FileExists(t, path)
	}
}

// TestJournalLost removes or truncates the journal: it is rewritten, and rebuilding works again.
func TestJournalLost(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(74, 75))
	dir := filepath.Join(t.TempDir(), "s")
	ids, want, recs := busyStore(t, dir, r)
	for _, damage := range []func(path string) error{
		os.Remove,
		func(path string) error { return os.Truncate(path, 100) },
		func(path string) error { flip(t, path, 100); return nil },
	} {
		files, err := filepath.Glob(filepath.Join(dir, packsName, "*"+journalExt))
		require.NoError(t, err)
		require.Len(t, files, 1)
		require.NoError(t, damage(files[0]))
		s, err := Open(dir, Options{})
		require.NoError(t, err)
		_, err = s.Check(ctx, CheckOptions{Repair: true})
		require.NoError(t, err)
		require.NoError(t, s.Update(ctx, true, func(tx *Tx) error { return tx.Put("names", "more", []byte("x")) }))
		require.NoError(t, s.Update(ctx, true, func(tx *Tx) error { return tx.Delete("names", "more") }))
		requireClean(t, s)
		require.NoError(t, s.Close())
		require.NoError(t, os.RemoveAll(filepath.Join(dir, indexName)))
		res, err := RebuildIndex(ctx, dir, RebuildOptions{})
		require.NoError(t, err)
		require.Empty(t, res.Problems)
	}
	requireRebuilt(t, dir, ids, want, recs)
}

// TestRebuildCut: a rebuild that ends before its index is in place leaves the old one in use.
func TestRebuildCut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	ids, want, _ := busyStore(t, dir, rand.New(rand.NewPCG(3, 3)))
	cut := filepath.Join(t.TempDir(), "cut")
	_, err := RebuildIndex(context.Background(), dir, RebuildOptions{points: func(point string) {
		if point == "index rebuilt" {
			require.NoError(t, os.CopyFS(cut, os.DirFS(dir)))
		}
	}})
	require.NoError(t, err)
	for _, d := range []string{cut, dir} {
		s := openTest(t, d)
		for i, id := range ids {
			require.Equal(t, want[i], readAll(t, s, id))
		}
		require.NoError(t, s.Close())
	}
}

// TestRebuildFails: when a rebuild fails at its last step, the store can be opened as before.
func TestRebuildFails(t *testing.T) {
	dir := t.TempDir()
	ids, want, recs := busyStore(t, dir, rand.New(rand.NewPCG(76, 77)))
	before := files(t, filepath.Join(dir, packsName))
	_, err := RebuildIndex(t.Context(), dir, RebuildOptions{points: func(at string) {
		if at == "index rebuilt" {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, newIndexName)))
		}
	}})
	require.Error(t, err)
	require.Equal(t, before, files(t, filepath.Join(dir, packsName)))
	requireRebuilt(t, dir, ids, want, recs)
}
