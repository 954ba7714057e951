package chunkstore

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/cdc"
	"snapfs/chunkstore/internal/sample"
)

// patch stores a version of a part of a manifest in which some stretches are overwritten: the rest is copied. Both have
// lead bytes in front.
func patch(t *testing.T, s *Store, old Manifest, off int64, lead, data []byte, edits [][2]int) Manifest {
	t.Helper()
	r, err := s.OpenManifest(t.Context(), old.ID)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	require.NoError(t, in.Hint(Hint{Path: "lead", Size: int64(len(lead))}))
	_, err = in.Write(lead)
	require.NoError(t, err)
	whole := Range{Manifest: old.ID, Off: off, Len: int64(len(data))}
	require.NoError(t, in.Hint(Hint{Path: "file", Size: whole.Len, Prev: []Range{whole}, InPlace: true}))
	at := 0
	for _, e := range append(edits, [2]int{len(data), 0}) {
		require.NoError(t, in.Copy(Range{Manifest: old.ID, Off: off + int64(at), Len: int64(e[0] - at)}))
		_, err := in.Write(data[e[0] : e[0]+e[1]])
		require.NoError(t, err)
		at = e[0] + e[1]
	}
	require.NoError(t, in.Hint(Hint{Size: 6}))
	_, err = in.Write([]byte("tables"))
	require.NoError(t, err)
	m, err := in.Commit(t.Context(), nil)
	require.NoError(t, err)
	return m
}

// overwrite changes stretches of data in place and lists them.
func overwrite(rnd *rand.Rand, data []byte, count, longest int) (edits [][2]int) {
	for at, i := 0, 0; i < count; i++ {
		room := (len(data) - at) / (count - i)
		if room < 2 {
			break
		}
		off := at + rnd.IntN(room)
		n := min(1+rnd.IntN(longest), at+room-off)
		for k := range data[off : off+n] {
			data[off+k] = byte(rnd.Uint32())
		}
		edits = append(edits, [2]int{off, n})
		at = off + n
	}
	return edits
}

// TestCopy stores versions of a file, each copied from the one before except what changed, and deletes the oldest ones
// on the way.
func TestCopy(t *testing.T) {
	for seed := range uint64(2) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		s := openTest(t, t.TempDir())
		data := append(sample.Noise(int64(seed), 3<<20+rnd.IntN(1000)), make([]byte, 1<<20)...)
		if seed%2 == 0 {
			data = append(data, binaryVersion(t, 1)...)
		} else {
			data = append(binaryVersion(t, 1), data...)
		}
		lead, off := []byte(nil), int64(5)
		m := put(t, s, []byte("head!"), part{path: "file", data: data})
		var manifests []Manifest
		var want [][]byte
		for range 8 {
			edits := overwrite(rnd, data, 1+rnd.IntN(5), []int{1, 4096, 300_000}[rnd.IntN(3)])
			lead = sample.Noise(int64(rnd.Uint32()), rnd.IntN(100))
			m = patch(t, s, m, off, lead, data, edits)
			off = int64(len(lead))
			manifests = append(manifests, m)
			want = append(want, bytes.Join([][]byte{lead, data, []byte("tables")}, nil))
			written := 0
			for _, e := range edits {
				written += e[1] + 3*cdc.MaxSize
			}
			if seed%2 != 0 && edits[0][0] < 2<<20 {
				written += 2 << 20 // a transform run is broken up
			}
			if m.New > int64(written)+4<<20 {
				t.Errorf("seed %d: %d bytes are new for %v", seed, m.New, edits)
			}
			if len(manifests) > 3 {
				deleteManifest(t, s, manifests[0].ID)
				manifests, want = manifests[1:], want[1:]
				_, err := s.GC(t.Context(), nil)
				require.NoError(t, err)
			}
		}
		for i, m := range manifests {
			require.True(t, bytes.Equal(want[i], readAll(t, s, m.ID)), "seed %d, version %d", seed, i)
		}
	}
}

// TestCopyCuts: a file that is overwritten here and there, again and again, keeps chunks of the usual size, and the
// pages that do not change are not stored again.
func TestCopyCuts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 3))
	s := openTest(t, t.TempDir())
	data := sample.Noise(7, 8<<20)
	m := put(t, s, nil, part{path: "file", data: data}, part{data: []byte("tables")})
	first := m.Chunks
	for range 12 {
		edits := overwrite(rnd, data, 10, 4096)
		m = patch(t, s, m, 0, nil, data, edits)
		if m.New > 10*(3*cdc.MaxSize) {
			t.Errorf("%d bytes are new for 10 pages", m.New)
		}
	}
	require.True(t, bytes.Equal(data, readAll(t, s, m.ID)[:len(data)]))
	fresh := put(t, s, nil, part{path: "file", data: data}, part{data: []byte("tables")})
	t.Logf("%d chunks at first, %d after 120 edits, %d of them cut in one go", first, m.Chunks, fresh.Chunks)
	if m.Chunks > fresh.Chunks*11/10 {
		t.Errorf("%d chunks, want about %d", m.Chunks, fresh.Chunks)
	}
	if fresh.New > m.Size/10 {
		t.Errorf("%d of %d bytes are cut otherwise", fresh.New, m.Size)
	}
}
