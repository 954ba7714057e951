package chunkstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/pack"
	"snapfs/internal/testseed"
)

// mixed stores a stream of large and small parts, some of which compress, then a changed version of it, which it
// returns.
func mixed(t *testing.T, s *Store, rnd *rand.Rand) (Manifest, []byte) {
	t.Helper()
	parts := []part{{"noise.bin", noise(rnd, 3<<20), nil}, {"long.txt", text(rnd, 3<<20), nil}}
	for i := range 300 {
		parts = append(parts, part{fmt.Sprintf("d%d/f%d.go", i/20, i%20), text(rnd, 1+rnd.IntN(12<<10)), nil})
	}
	old := put(t, s, nil, parts...)
	at := int64(0)
	for i := range parts {
		p := &parts[i]
		p.prev = []Range{{old.ID, at, int64(len(p.data))}}
		at += int64(len(p.data))
		if i%2 == 0 {
			p.data = bytes.Clone(p.data)
			copy(p.data[len(p.data)/2:], "changed")
		}
	}
	parts = append(parts, part{"tail.bin", noise(rnd, 200<<10), nil})
	return put(t, s, nil, parts...), join(nil, parts...)
}

// TestReadSizes reads pieces of all sizes, from several goroutines and with caches of different sizes, and compares
// them with what was stored.
func TestReadSizes(t *testing.T) {
	seed := testseed.Of(t)
	for _, cache := range []int64{1, 1 << 20, 64 << 20} {
		t.Run(fmt.Sprint(cache), func(t *testing.T) {
			s, err := Open(t.TempDir(), Options{CacheBytes: cache})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			m, want := mixed(t, s, rand.New(rand.NewPCG(seed, 1)))
			s.blocks.clear()
			r, err := s.OpenManifest(t.Context(), m.ID)
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			var wg sync.WaitGroup
			for g := range uint64(3) {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, 2+g))
					for range 60 {
						off := rnd.IntN(len(want))
						p := make([]byte, min(len(want)-off, 1+rnd.IntN(1<<(10+rnd.IntN(11)))))
						n, err := r.ReadAt(p, int64(off))
						if err != nil || n != len(p) || !bytes.Equal(p, want[off:off+n]) {
							t.Errorf("%d bytes at %d: %d, equal %v, %v", len(p), off, n,
								bytes.Equal(p[:n], want[off:off+n]), err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestReadPlain reads what does not compress in large pieces that begin and end within records: it passes the cache by.
func TestReadPlain(t *testing.T) {
	s := openTest(t, t.TempDir())
	data := noise(rand.New(rand.NewPCG(2, 2)), 3<<20)
	m := put(t, s, nil, part{"noise.bin", data, nil})
	s.blocks.clear()
	r, err := s.OpenManifest(t.Context(), m.ID)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	p := make([]byte, 300_000)
	for off := 0; off < len(data); off += len(p) {
		want := data[off:min(off+len(p), len(data))]
		n, err := r.ReadAt(p[:len(want)], int64(off))
		require.NoError(t, err)
		require.Equal(t, want, p[:n])
	}
	s.blocks.mu.Lock()
	defer s.blocks.mu.Unlock()
	require.Empty(t, s.blocks.byKey)
}

// TestReadDamaged reads across a damaged record at once: what lies before it is returned, and the error says where it
// is.
func TestReadDamaged(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	data := noise(rand.New(rand.NewPCG(1, 1)), 2<<20)
	m := put(t, s, nil, part{"noise.bin", data, nil})
	r, err := s.OpenManifest(t.Context(), m.ID)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	sg, err := s.segment(r.m, 0)
	require.NoError(t, err)
	bad := sg.chunkAt(1 << 20)
	rec, _, err := s.locate(sg.nums[bad])
	require.NoError(t, err)
	first := bad
	for first > 0 {
		before, _, err := s.locate(sg.nums[first-1])
		require.NoError(t, err)
		if before.Location != rec.Location {
			break
		}
		first--
	}
	flip(t, filepath.Join(dir, packsName, pack.Name(rec.Pack)), rec.End()-10)
	s.blocks.clear()
	p := make([]byte, len(data))
	n, err := r.ReadAt(p, 0)
	var damage *DamageError
	require.ErrorIs(t, err, ErrCorrupt)
	require.True(t, errors.As(err, &damage))
	require.EqualValues(t, sg.offs[first], n)
	require.EqualValues(t, sg.offs[first], damage.Off)
	require.Equal(t, data[:n], p[:n])
}

// TestLoader sees what a first read in a tree of small files has decoded ahead: something, and no more than the credit
// that there is to begin with.
func TestLoader(t *testing.T) {
	s := openTest(t, t.TempDir())
	rnd := rand.New(rand.NewPCG(3, 3))
	var parts []part
	for i := range 1000 {
		parts = append(parts,
			part{fmt.Sprintf("d%02d/%c%d.go", i/25, 'a'+i%25, i), text(rnd, 4<<10+rnd.IntN(8<<10)), nil})
	}
	m := put(t, s, nil, parts...)
	s.blocks.clear()
	r, err := s.OpenManifest(t.Context(), m.ID)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	sg, err := s.segment(r.m, 0)
	require.NoError(t, err)
	s.noteFirstRead(r.m, sg.offs[len(sg.nums)/2], blockWaited)
	// Work that was started ends, without a reader that waits for it.
	require.Eventually(t, func() bool {
		s.loader.mu.Lock()
		defer s.loader.mu.Unlock()
		return s.loader.workers == 0 && len(s.loader.queue) == 0
	}, time.Minute, time.Millisecond)
	s.blocks.mu.Lock()
	ahead := len(s.blocks.byKey)
	s.blocks.mu.Unlock()
	require.Positive(t, ahead)
	require.LessOrEqual(t, ahead, creditStart/creditRecord)
}

// BenchmarkReadCold reads a large file of noise and one of text in pieces of 1 MiB, as the kernel does, with an empty
// cache.
func BenchmarkReadCold(b *testing.B) {
	rnd := rand.New(rand.NewPCG(5, 5))
	for name, data := range map[string][]byte{"noise": noise(rnd, 32<<20), "text": text(rnd, 32<<20)} {
		b.Run(name, func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			m, err := tryPut(s, nil, part{"large", data, nil})
			if err != nil {
				b.Fatal(err)
			}
			r, err := s.OpenManifest(b.Context(), m.ID)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			buf := make([]byte, 1<<20)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			start := cpuTime(b)
			for b.Loop() {
				s.blocks.clear()
				for off := 0; off < len(data); off += len(buf) {
					if _, err := r.ReadAt(buf, int64(off)); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N)*float64(len(data))/1e6/(cpuTime(b)-start).Seconds(), "MB/cpu-s")
		})
	}
}
