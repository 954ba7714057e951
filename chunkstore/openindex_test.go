package chunkstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/pack"
)

// requireWholeOrCorrupt opens a damaged copy of a store: that fails with ErrCorrupt, or nothing is missing.
func requireWholeOrCorrupt(t *testing.T, dir, what string, ids []ID, want [][]byte) (opened bool) {
	t.Helper()
	s, err := Open(dir, Options{})
	if err != nil {
		require.ErrorIs(t, err, ErrCorrupt, what)
		return false
	}
	defer func() { _ = s.Close() }()
	good, bad := readable(t, s, ids, want)
	if len(bad) > 0 {
		problems, err := s.Check(context.Background(), CheckOptions{})
		require.NoError(t, err, what)
		require.NotEmpty(t, problems, what)
	}
	require.Len(t, append(good, bad...), len(ids), what)
	return true
}

// TestCutIndex cuts each file of the index short, of a closed store and of one whose process was killed: Open says
// that it is corrupt, and does not lose records without a word.
func TestCutIndex(t *testing.T) {
	unraced(t)
	r := rand.New(rand.NewPCG(30, 31))
	base := t.TempDir()
	dir := filepath.Join(base, "s")
	s := openTest(t, dir)
	ids, want := history(t, s, r, 3)
	require.NoError(t, s.Close())
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	more, wantMore := history(t, s, r, 2)
	ids, want = append(ids, more...), append(want, wantMore...)
	killed := filepath.Join(base, "killed")
	require.NoError(t, os.CopyFS(killed, os.DirFS(dir)))
	require.NoError(t, s.Close())
	refused := 0
	for _, from := range []string{dir, killed} {
		files, err := filepath.Glob(filepath.Join(from, indexName, "*"))
		require.NoError(t, err)
		for i, path := range files {
			fi, err := os.Stat(path)
			require.NoError(t, err)
			if fi.Size() == 0 {
				continue
			}
			for k, n := range []int64{0, 1, fi.Size() / 2, fi.Size() - 1} {
				broken := filepath.Join(base, fmt.Sprintf("%s-%d-%d", filepath.Base(from), i, k))
				require.NoError(t, os.CopyFS(broken, os.DirFS(from)))
				name := filepath.Base(path)
				require.NoError(t, os.Truncate(filepath.Join(broken, indexName, name), n))
				what := fmt.Sprintf("%s of %d bytes cut to %d", name, fi.Size(), n)
				if requireWholeOrCorrupt(t, broken, what, ids, want) {
					t.Log("opened:", what)
				} else {
					refused++
				}
				require.NoError(t, os.RemoveAll(broken))
			}
		}
	}
	require.Greater(t, refused, 8)
}

// TestUnnamedTable: a table that the list does not name is what a process leaves that is killed while it closes the store:
// no transaction waits in a log, and the last merge has written a table that is not named yet, or not removed one. The
// store opens, and nothing is missing.
func TestUnnamedTable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openTest(t, dir)
	ids, want := history(t, s, rand.New(rand.NewPCG(30, 31)), 3)
	require.NoError(t, s.Close())
	tables, err := filepath.Glob(filepath.Join(dir, indexName, "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	left := filepath.Join(dir, indexName, "000999.sst")
	b, err := os.ReadFile(tables[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(left, b, 0o600))
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	good, bad := readable(t, s, ids, want)
	require.Empty(t, bad)
	require.Len(t, good, len(ids))
	require.NoError(t, s.Close())
	require.NoFileExists(t, left)
}

// TestOldIndex puts an older state of the index under a store: records that were acknowledged would be missing.
func TestOldIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(32, 33))
	base := t.TempDir()
	dir := filepath.Join(base, "s")
	s := openTest(t, dir)
	put(t, s, nil, part{"a", text(r, 10_000), nil})
	require.NoError(t, s.Close())
	old := filepath.Join(base, "old")
	require.NoError(t, os.CopyFS(old, os.DirFS(filepath.Join(dir, indexName))))
	s = openTest(t, dir)
	put(t, s, nil, part{"b", text(r, 10_000), nil})
	require.NoError(t, s.Close())
	require.NoError(t, os.RemoveAll(filepath.Join(dir, indexName)))
	require.NoError(t, os.Rename(old, filepath.Join(dir, indexName)))
	_, err := Open(dir, Options{})
	require.ErrorIs(t, err, ErrCorrupt)
}

// files returns the contents of the files in a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range names {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		all[e.Name()] = string(b)
	}
	return all
}

// TestIndexOlderThanJournal puts an older index and the count of its transactions under a store. Open refuses it and
// cuts nothing, and rebuilding the index brings everything back. An entry of one transaction more is what a crash leaves.
func TestIndexOlderThanJournal(t *testing.T) {
	unraced(t)
	ctx := t.Context()
	for _, later := range []string{"values", "manifests", "moves", "one transaction"} {
		t.Run(later, func(t *testing.T) {
			r := rand.New(rand.NewPCG(34, 35))
			base := t.TempDir()
			dir := filepath.Join(base, "s")
			ids, want, recs := busyStore(t, dir, r)
			old := filepath.Join(base, "old")
			require.NoError(t, os.CopyFS(old, os.DirFS(dir)))
			s := openTest(t, dir)
			write := func(n int) {
				for i := range n {
					require.NoError(t, s.Update(ctx, true, func(tx *Tx) error {
						return tx.Put("names", fmt.Sprint("later", i), []byte("x"))
					}))
					recs[fmt.Sprint("later", i)] = "x"
				}
			}
			moved := ""
			switch later {
			case "values":
				write(3)
			case "manifests":
				more, wantMore := history(t, s, r, 3)
				ids, want = append(ids, more...), append(want, wantMore...)
			case "moves":
				// As if the records of the last pack had been moved to another, and the pack removed.
				files, err := filepath.Glob(filepath.Join(dir, packsName, "*"+pack.Ext))
				require.NoError(t, err)
				num, ok := pack.ParseName(filepath.Base(files[len(files)-1]))
				require.True(t, ok)
				b, err := os.ReadFile(files[len(files)-1])
				require.NoError(t, err)
				copy(b, pack.Header("snapPACK", num+100))
				require.NoError(t, os.WriteFile(filepath.Join(dir, packsName, pack.Name(num+100)), b, 0o600))
				moved = files[len(files)-1]
			case "one transaction":
				write(1)
			}
			if later == "one transaction" {
				killed := filepath.Join(base, "killed")
				require.NoError(t, os.CopyFS(killed, os.DirFS(dir)))
				require.NoError(t, s.Close())
				dir = killed
			} else {
				require.NoError(t, s.Close())
			}
			require.NoError(t, os.RemoveAll(filepath.Join(dir, indexName)))
			require.NoError(t, os.CopyFS(filepath.Join(dir, indexName), os.DirFS(filepath.Join(old, indexName))))
			count, err := os.ReadFile(filepath.Join(old, counterName))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, counterName), count, 0o600))
			if later == "one transaction" {
				delete(recs, "later0")
				requireRebuilt(t, dir, ids, want, recs)
				return
			}
			if moved != "" {
				require.NoError(t, os.Remove(moved))
			}
			before := files(t, filepath.Join(dir, packsName))
			for _, readOnly := range []bool{true, false} {
				_, err := Open(dir, Options{ReadOnly: readOnly})
				require.ErrorIs(t, err, ErrIndex)
				require.ErrorContains(t, err, "older")
			}
			require.Equal(t, before, files(t, filepath.Join(dir, packsName)))
			res, err := RebuildIndex(ctx, dir, RebuildOptions{})
			require.NoError(t, err)
			require.Empty(t, res.Problems)
			requireRebuilt(t, dir, ids, want, recs)
		})
	}
}
