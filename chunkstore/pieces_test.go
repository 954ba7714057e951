package chunkstore

import (
	"bytes"
	"debug/elf"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sample"
	"snapfs/chunkstore/internal/transform"
	"snapfs/internal/testseed"
	"snapfs/internal/zdeflate"
)

// goBinary builds a program with debug sections of some MB.
func goBinary(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"),
		[]byte("package main\n\nimport _ \"net/http\"\n\nfunc main() {}\n"), 0o600))
	out := filepath.Join(dir, "prog")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", out, filepath.Join(dir, "main.go"))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", b)
	bin, err := os.ReadFile(out)
	require.NoError(t, err)
	return bin
}

// readEverywhere reads a stream at random and near every offset of at.
func readEverywhere(t *testing.T, s *Store, id ID, want []byte, r *rand.Rand, at []int64) {
	t.Helper()
	require.True(t, bytes.Equal(want, readAll(t, s, id)))
	reader, err := s.OpenManifest(t.Context(), id)
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	var all sync.WaitGroup
	for part := range 4 {
		s.transforms.clear()
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		all.Go(func() {
			for i := range 60 {
				off, n := r.Int64N(int64(len(want))), 1+r.IntN(1<<uint(6+r.IntN(16)))
				if k := i*4 + part; k < len(at) {
					off = max(0, at[k]-r.Int64N(100))
				}
				end := min(int64(len(want)), off+int64(n))
				p := make([]byte, end-off)
				if _, err := reader.ReadAt(p, off); err != nil || !bytes.Equal(want[off:end], p) {
					t.Errorf("%d bytes at %d are wrong, %v", n, off, err)
				}
			}
		})
	}
	all.Wait()
}

// TestPieces stores files with long streams and reads them everywhere, also what Copy makes of them, and after the index
// was rebuilt.
func TestPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	dir := t.TempDir()
	s := openTest(t, dir)
	bin := goBinary(t)
	text := sample.Prose(5, 3_000_000)
	var zlib bytes.Buffer
	require.NoError(t, zdeflate.Zlib(&zlib, append([]byte("blob 3000000\x00"), text...),
		zdeflate.Params{Level: 1, MemLevel: 8, WindowBits: 15}))
	m := put(t, s, []byte("header"), part{path: "a.txt", data: text}, part{path: "prog", data: bin},
		part{path: ".git/objects/00/11", data: zlib.Bytes()})
	want := bytes.Join([][]byte{[]byte("header"), text, bin, zlib.Bytes()}, nil)

	list, err := s.manifest(m.ID)
	require.NoError(t, err)
	var edges []int64
	for i := range list.transforms {
		tr := &list.transforms[i]
		for off := int64(0); off < tr.len; {
			_, _, end := tr.partAt(off)
			off = end
			edges = append(edges, tr.off+off)
			require.True(t, tr.pieces != nil || tr.inner < 400_000, "a long stream is divided")
		}
	}
	sections := 0
	f, err := elf.NewFile(bytes.NewReader(bin))
	require.NoError(t, err)
	for _, sec := range f.Sections {
		if sec.Flags&elf.SHF_COMPRESSED != 0 && sec.Size > 1<<20 {
			sections++
		}
	}
	require.Positive(t, sections)
	require.Greater(t, len(edges), 20)
	readEverywhere(t, s, m.ID, want, r, edges)

	changed := bytes.Clone(want[6:])
	patched := patch(t, s, m, 6, nil, changed, overwrite(r, changed, 12, 3000))
	readEverywhere(t, s, patched.ID, append(changed, "tables"...), r, edges)
	_, err = s.Optimize(t.Context(), nil)
	require.NoError(t, err)
	readEverywhere(t, s, m.ID, want, r, edges)
	require.NoError(t, s.Close())
	_, err = RebuildIndex(t.Context(), dir, RebuildOptions{})
	require.NoError(t, err)
	readEverywhere(t, openTest(t, dir), m.ID, want, r, edges)
}

// TestUndividedRun checks that long runs without pieces, as earlier versions wrote them, are read.
func TestUndividedRun(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	s := openTest(t, t.TempDir())
	text := sample.Prose(5, 1_000_000)
	raw := sample.GoZlib(t, text)
	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	require.NoError(t, in.Hint(Hint{Path: "prog", Size: int64(len(raw))}))
	require.NoError(t, in.inflated(transform.Run{Codec: transform.GoZlib, Len: int64(len(raw)), Debug: true}, [][]byte{text}))
	m, err := in.Commit(t.Context(), nil)
	require.NoError(t, err)
	readEverywhere(t, s, m.ID, raw, r, nil)
}
