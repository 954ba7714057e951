package chunkstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/pack"
)

// flip damages one byte of a file.
func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, off)
	require.NoError(t, err)
	b[0] ^= 0x55
	_, err = f.WriteAt(b, off)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// readable sorts manifests by whether they can be read; what can be read must be right.
func readable(t *testing.T, s *Store, ids []ID, want [][]byte) (good, bad []ID) {
	t.Helper()
	for i, id := range ids {
		r, err := s.OpenManifest(context.Background(), id)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			bad = append(bad, id)
			continue
		}
		var b bytes.Buffer
		_, err = r.WriteTo(&b)
		require.NoError(t, r.Close())
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			var de *DamageError
			require.ErrorAs(t, err, &de)
			require.Equal(t, id, de.Manifest)
			bad = append(bad, id)
			continue
		}
		require.True(t, bytes.Equal(want[i], b.Bytes()))
		good = append(good, id)
	}
	return good, bad
}

// TestDamagedPack flips bytes of a pack: reading fails for the manifests that Check names, and for no others.
func TestDamagedPack(t *testing.T) {
	unraced(t)
	ctx := context.Background()
	r := rand.New(rand.NewPCG(14, 15))
	dir := t.TempDir()
	s := openTest(t, dir)
	ids, want := history(t, s, r, 8)
	newest := uint32(0)
	for num := range s.packs.Sizes() {
		newest = max(newest, num)
	}
	require.NoError(t, s.Close())
	somewhere := false
	for i := range 12 {
		path := filepath.Join(dir, packsName, pack.Name(1))
		if i%2 == 1 {
			path = filepath.Join(dir, packsName, pack.Name(newest))
		}
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		off := pack.HeaderSize + r.Int64N(int64(len(whole))-pack.HeaderSize)
		if i%2 == 1 {
			off = int64(len(whole)) - 1 - r.Int64N(2000) // what only the newest need
		}
		flip(t, path, off)
		s, err := Open(dir, Options{})
		require.NoError(t, err)
		problems, err := s.Check(ctx, CheckOptions{ReadData: true})
		require.NoError(t, err)
		var told []ID
		for _, p := range problems {
			told = append(told, p.Manifests...)
		}
		slices.Sort(told)
		good, bad := readable(t, s, ids, want)
		require.Equal(t, bad, slices.Compact(told), "byte %d", off)
		somewhere = somewhere || len(good) > 0 && len(bad) > 0

		// Storing the same again and collecting do not make it worse.
		_, err = s.GC(ctx, nil)
		require.NoError(t, err)
		again, _ := readable(t, s, ids, want)
		require.Equal(t, good, again)
		require.NoError(t, s.Close())
		require.NoError(t, os.WriteFile(path, whole, 0o600))
	}
	require.True(t, somewhere)
}

// TestDamagedIndex flips bytes of Badger's table: nothing crashes, and every error is of class ErrCorrupt.
func TestDamagedIndex(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(16, 17))
	dir := t.TempDir()
	s := openTest(t, dir)
	ids, want := history(t, s, r, 4)
	require.NoError(t, s.Close())
	for range 12 {
		broken := filepath.Join(t.TempDir(), "s")
		require.NoError(t, os.CopyFS(broken, os.DirFS(dir)))
		tables, err := filepath.Glob(filepath.Join(broken, indexName, "*.sst"))
		require.NoError(t, err)
		require.Len(t, tables, 1)
		fi, err := os.Stat(tables[0])
		require.NoError(t, err)
		off := r.Int64N(fi.Size())
		flip(t, tables[0], off)
		s, err := Open(broken, Options{ReadOnly: true})
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt, "byte %d of %d", off, fi.Size())
			continue
		}
		problems, err := s.Check(ctx, CheckOptions{ReadData: true})
		require.NoError(t, err)
		require.NotEmpty(t, problems, "byte %d of %d", off, fi.Size())
		readable(t, s, ids, want)
		require.NoError(t, s.Close())
	}
}

// TestBadPages feeds damaged pages of the index to their parser.
func TestBadPages(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 19))
	pg := &page{}
	one := &located{Location: pack.Location{Pack: 1, Off: 20, Len: 300}}
	two := &located{Location: pack.Location{Pack: 1, Off: 320, Len: 30}, delta: true, gen: 2, bases: []uint64{3, 900}}
	pg.slots[0], pg.slots[7], pg.slots[9] = slot{one, 100}, slot{two, 200}, slot{one, 5}
	b := appendPage(nil, 2, pg)
	back, err := parsePage(b, 2)
	require.NoError(t, err)
	require.Equal(t, pg, back)
	for _, at := range []pack.Location{{Pack: 1, Off: 20}, {Pack: 1, Len: 30}, {Pack: 1, Off: 1 << 62, Len: 30}} {
		_, err := parsePage(appendPage(nil, 2, &page{slots: [pageChunks]slot{{&located{Location: at}, 1}}}), 2)
		require.ErrorIs(t, err, ErrCorrupt, "%+v", at)
	}
	for range 20_000 {
		bad := bytes.Clone(b)
		bad[r.IntN(len(bad))] = byte(r.Uint32())
		_, _ = parsePage(bad[:r.IntN(len(bad)+1)], 2) // must not panic
	}
}

func FuzzManifest(f *testing.F) {
	c := frame.NewCodec()
	m := &chunkList{header: []byte("head")}
	m.Size = 4
	m.add(5, 100)
	m.add(6, 100)
	f.Add(m.encode(c))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(1, b, c)
		if err == nil && m.Size < int64(len(m.header)) {
			t.Error("size")
		}
	})
}

func FuzzPage(f *testing.F) {
	f.Add([]byte{1, 0, 1, 20, 30, 1, 5})
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parsePage(b, 3) // must not panic
	})
}
