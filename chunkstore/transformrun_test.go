package chunkstore

import (
	"bytes"
	"fmt"
	"math/rand"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/sample"
	"snapfs/chunkstore/internal/transform"
	"snapfs/internal/varint"
)

// binaryVersion makes an ELF file with two compressed sections, of which versions differ a little.
func binaryVersion(t testing.TB, version int) []byte {
	t.Helper()
	const compressed = 1 << 11
	a, b := sample.Edited(int64(version), sample.Prose(1, 900_000), version*3),
		sample.Edited(int64(version), sample.Prose(2, 300_000), version*3)
	return sample.ELF(t,
		sample.Section{Flags: 0, Data: sample.Noise(5, 70_000)},
		sample.Section{Flags: compressed, Data: sample.Compressed(len(a), sample.GoZlib(t, a))},
		sample.Section{Flags: compressed, Data: sample.Compressed(len(b), sample.GoZlib(t, b))},
		sample.Section{Flags: 0, Data: sample.Noise(6, 30_000)},
	)
}

func TestStoreTransforms(t *testing.T) {
	const seed = 4
	rnd := rand.New(rand.NewSource(seed))
	dir := t.TempDir()
	s := openTest(t, dir)
	header := []byte("the header")
	var versions [][]byte
	var manifests []Manifest
	var prev []Range
	first := int64(0)
	for v := range 3 {
		bin := binaryVersion(t, v)
		before, after := sample.Prose(9, 1000), sample.Prose(10, 200_000)
		m := put(t, s, header,
			part{path: "a.txt", data: before}, part{path: "bin", data: bin, prev: prev},
			part{path: "z.txt", data: after}, part{data: []byte("tables")})
		prev = []Range{{Manifest: m.ID, Off: int64(len(header) + len(before)), Len: int64(len(bin))}}
		versions = append(versions, bytes.Join([][]byte{header, before, bin, after, []byte("tables")}, nil))
		manifests = append(manifests, m)
		list, err := s.manifest(m.ID)
		require.NoError(t, err)
		require.Len(t, list.transforms, 2)
		if v == 0 {
			stats, err := s.Stats(t.Context())
			require.NoError(t, err)
			first = stats.Payload
		}
		require.Equal(t, int64(len(versions[v])), m.Size)
	}
	stats, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.Less(t, stats.Payload, first*101/100, "later versions are small deltas")

	check := func(s *Store) {
		for v, m := range manifests {
			require.True(t, bytes.Equal(versions[v], readAll(t, s, m.ID)))
			r, err := s.OpenManifest(t.Context(), m.ID)
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 4 {
				off, n := rnd.Intn(len(versions[v])), rnd.Intn(100_000)
				wg.Go(func() {
					p := make([]byte, n)
					k, err := r.ReadAt(p, int64(off))
					if want := versions[v][off:min(off+n, len(versions[v]))]; !bytes.Equal(want, p[:k]) {
						t.Errorf("version %d at %d: wrong bytes, %v, seed %d", v, off, err, seed)
					}
				})
			}
			wg.Wait()
			require.NoError(t, r.Close())
		}
	}
	check(s)
	require.NoError(t, s.Close())
	again := openTest(t, dir)
	check(again)
}

// TestTransformDigest checks that the digest depends on the bytes, and not on the pieces in which they are written.
func TestTransformDigest(t *testing.T) {
	s := openTest(t, t.TempDir())
	bin := binaryVersion(t, 0)
	a := put(t, s, nil, part{path: "bin", data: bin})
	b := put(t, s, nil, part{path: "other", data: bin})
	require.Equal(t, a.Digest, b.Digest)
	plain := put(t, s, nil, part{data: bin})
	require.NotEqual(t, a.Digest, plain.Digest, "metadata is not looked into: other chunks")
	require.Equal(t, bin, readAll(t, s, plain.ID))
}

func TestManifestTransforms(t *testing.T) {
	c := frame.NewCodec()
	m := &chunkList{header: []byte("head")}
	m.Kind, m.Size, m.stored = KindImage, 4, 4
	for i := range 3000 {
		m.add(uint64(10+i), 1000)
		if i == 5 || i == 100 || i == 2500 {
			m.addTransform(transformRun{codec: transform.GoZlib, len: 600, inner: 1000})
		}
	}
	m.index()
	got, err := parseManifest(0, m.encode(c), c)
	require.NoError(t, err)
	require.Equal(t, m, got)
	m2 := &chunkList{header: []byte("head")}
	m2.Kind, m2.Size, m2.stored = KindImage, 4, 4
	m2.add(100, 1000)
	m2.addTransform(transformRun{codec: transform.Deflate, len: 600, inner: 1000, pieces: piecesOf(t)})
	m2.index()
	got2, err := parseManifest(0, m2.encode(c), c)
	require.NoError(t, err)
	require.Equal(t, m2, got2)

	naive := func(off int64) (run int, at int64) {
		shift := int64(0)
		for i, t := range m.transforms {
			if off >= t.off && off < t.off+t.len {
				return i, 0
			}
			if off >= t.off {
				shift += t.inner - t.len
			}
		}
		return -1, off + shift
	}
	for off := int64(0); off < m.Size; off += 97 {
		run, at, n := got.transformAt(off)
		wantRun, wantAt := naive(off)
		require.Equal(t, wantRun, run)
		require.Equal(t, wantAt, at)
		if run < 0 {
			last, _ := naive(off + n - 1)
			require.Equal(t, -1, last)
		}
	}
	lo, hi := got.storedRange(0, m.Size)
	require.Equal(t, [2]int64{0, m.stored}, [2]int64{lo, hi})
	require.Len(t, got.transformsIn(lo, hi), 3)

	for name, spoil := range map[string]func(m *chunkList){
		"size":    func(m *chunkList) { m.Size++ },
		"ratio":   func(m *chunkList) { m.transforms[0].inner = 600 * 65 },
		"beyond":  func(m *chunkList) { m.transforms[2].off = m.Size },
		"nothing": func(m *chunkList) { m.transforms[1].len = 0 },
	} {
		bad := *m
		bad.transforms = append([]transformRun(nil), m.transforms...)
		spoil(&bad)
		_, err := parseManifest(0, bad.encode(c), c)
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
}

// piecesOf gives the pieces of a run of 600 bytes that is made of 1000.
func piecesOf(t testing.TB) *transform.Pieces {
	t.Helper()
	pieces := transform.ParsePieces(&varint.Parser{Rest: []byte{6, 8 | 6<<4, 0, 0, 0, 0}}, 600, 1000)
	require.NotNil(t, pieces)
	return pieces
}

func FuzzParseManifest(f *testing.F) {
	c := frame.NewCodec()
	m := &chunkList{header: []byte("head")}
	m.Kind, m.Size, m.stored = KindImage, 4, 4
	for i := range 20 {
		m.add(uint64(i*2), 1000)
	}
	m.addTransform(transformRun{codec: transform.GoZlib, len: 600, inner: 1000})
	f.Add(m.encode(c))
	m.add(100, 1000)
	m.addTransform(transformRun{codec: transform.Deflate, len: 600, inner: 1000, pieces: piecesOf(f)})
	f.Add(m.encode(c))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(1, b, c)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		for off := range m.Size {
			if off > 100 {
				break
			}
			m.transformAt(off)
		}
		m.storedRange(0, m.Size)
	})
}

func BenchmarkReadTransformed(b *testing.B) {
	for _, cold := range []bool{true, false} {
		b.Run(fmt.Sprintf("cold=%v", cold), func(b *testing.B) {
			s, err := Open(b.TempDir(), Options{})
			require.NoError(b, err)
			defer func() { require.NoError(b, s.Close()) }()
			m, err := tryPut(s, nil, part{path: "bin", data: binaryVersion(b, 0)})
			require.NoError(b, err)
			r, err := s.OpenManifest(b.Context(), m.ID)
			require.NoError(b, err)
			defer func() { require.NoError(b, r.Close()) }()
			p := make([]byte, 4096)
			for b.Loop() {
				if cold {
					s.transforms.clear()
				}
				if _, err := r.ReadAt(p, m.Size/3); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
