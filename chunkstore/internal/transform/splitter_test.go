package transform

import (
	"bytes"
	"compress/zlib"
	"context"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/cdc"
	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/sample"
)

// split runs a file through a recompressor in pieces and gives the bytes that undo makes of what came
// out, and the inner bytes of the transform runs.
func split(t testing.TB, file []byte, size int64, piece func() int) (out []byte, inner [][]byte) {
	t.Helper()
	r := NewSplitter(context.Background(), make(chan struct{}, 1), packedSize, func(p []byte) error {
		out = append(out, p...)
		return nil
	}, func(run Run, parts [][]byte) error {
		in := bytes.Join(parts, nil)
		inner = append(inner, in)
		var err error
		out, err = undo(out, run, in)
		return err
	})
	r.Begin(size)
	for p := file; len(p) > 0; {
		n := min(len(p), piece())
		w, err := r.Write(p[:n])
		require.NoError(t, err)
		require.Equal(t, n, w)
		p = p[n:]
	}
	require.NoError(t, r.Flush())
	return out, inner
}

func TestRecompress(t *testing.T) {
	const compressed = 1 << 11
	a, b := sample.Prose(1, 300_000), sample.Prose(2, 90_000)
	var level9 bytes.Buffer
	w, err := zlib.NewWriterLevel(&level9, 9)
	require.NoError(t, err)
	_, err = w.Write(a)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	flipped := sample.GoZlib(t, a)
	flipped[len(flipped)/2] ^= 1
	bomb := sample.GoZlib(t, make([]byte, 2<<20))
	file := sample.ELF(t,
		sample.Section{Flags: 0, Data: sample.Noise(5, 5000)},
		sample.Section{Flags: compressed, Data: sample.Compressed(len(a), sample.GoZlib(t, a))},
		sample.Section{Flags: 0, Data: append([]byte("ZLIB\x00\x00\x00\x00\x00\x01\x5f\x90"), sample.GoZlib(t, b)...)},
		sample.Section{Flags: compressed, Data: sample.Compressed(len(a), level9.Bytes())},
		sample.Section{Flags: compressed, Data: sample.Compressed(len(a), flipped)},
		sample.Section{Flags: compressed, Data: sample.Compressed(len(a)+1, sample.GoZlib(t, a))},
		sample.Section{Flags: compressed, Data: sample.Compressed(1<<40, sample.GoZlib(t, a))},
		sample.Section{Flags: compressed, Data: sample.Compressed(2<<20, bomb)},
		sample.Section{Flags: compressed, Data: sample.Compressed(len(a), append(sample.GoZlib(t, a), 0))},
		sample.Section{Flags: compressed, Data: sample.Noise(6, 1000)},
		sample.Section{Flags: compressed | 2, Data: sample.Compressed(len(a), sample.GoZlib(t, a))},
		sample.Section{Flags: compressed, Data: sample.Compressed(len(b), sample.GoZlib(t, b))},
	)
	const seed = 8
	rnd := rand.New(rand.NewSource(seed))
	for _, most := range []int{1 << 30, 100, 5000, 100_000} {
		out, inner := split(t, file, int64(len(file)), func() int { return 1 + rnd.Intn(most) })
		require.True(t, bytes.Equal(file, out), "pieces up to %d, seed %d", most, seed)
		require.Len(t, inner, 3)
		require.True(t, bytes.Equal(a, inner[0]) && bytes.Equal(b, inner[1]) && bytes.Equal(b, inner[2]))
	}
	for _, size := range []int64{-1, cdc.WholePart - 1} {
		out, inner := split(t, file, size, func() int { return 9999 })
		require.True(t, bytes.Equal(file, out))
		require.Empty(t, inner, "size %d is not looked into", size)
	}
	for _, n := range []int{0, 3, 10, elfHead, elfHead + 2000, len(file) / 2} {
		out, _ := split(t, file[:n], int64(len(file)), func() int { return 777 })
		require.True(t, bytes.Equal(file[:n], out), "a file that ends early at %d", n)
	}
}

// TestRecompressLinker: what the linker of this toolchain writes is found and made again. If a new
// toolchain fails here, its compressor differs from the frozen copy and needs a codec of its own.
func TestRecompressLinker(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(src, []byte("package main\n\nfunc main() { println(1) }\n"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, "bin"), src)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GO111MODULE=off", "CGO_ENABLED=0", "GOOS=linux")
	cmd.WaitDelay = time.Second
	msg, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", msg)
	file, err := os.ReadFile(filepath.Join(dir, "bin"))
	require.NoError(t, err)
	out, inner := split(t, file, int64(len(file)), func() int { return 1 << 20 })
	require.True(t, bytes.Equal(file, out))
	require.Greater(t, len(inner), 3)
}

func TestUndoBounds(t *testing.T) {
	data := sample.Prose(1, 100_000)
	raw := sample.GoZlib(t, data)
	got, err := GoZlib.Undo([]byte("x"), data, int64(len(raw)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(raw, got[1:]))
	for _, tc := range []struct {
		t      Codec
		inner  []byte
		outLen int64
	}{
		{None, data, int64(len(raw))},
		{2, data, int64(len(raw))},
		{GoZlib, data, int64(len(raw)) - 1},
		{GoZlib, data, int64(len(raw)) + 1},
		{GoZlib, data, 1 << 62},
		{GoZlib, data, 1 << 40},
		{GoZlib, data, 0},
		{GoZlib, data, -1},
		{GoZlib, nil, int64(len(raw))},
		{GoZlib, make([]byte, MaxInflated+1), 10 << 20},
	} {
		_, err := tc.t.Undo(nil, tc.inner, tc.outLen)
		require.ErrorIs(t, err, corrupt.Err)
	}
}

func FuzzSplit(f *testing.F) {
	a := sample.Prose(1, 3000)
	f.Add(sample.ELF(f, sample.Section{Flags: 1 << 11, Data: sample.Compressed(len(a), sample.GoZlib(f, a))}), 1000)
	f.Add(zlibStream(f, append([]byte("blob 3000\x00"), a...), 6), 100)
	f.Add(append([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"), zlibStream(f, a, 9)[2:]...), 100)
	pack, _ := gitPack(f)
	f.Add(pack, 5000)
	f.Fuzz(func(t *testing.T, file []byte, piece int) {
		splitRuns(t, file, func() int { return 1 + max(0, piece) })
		out, _ := split(t, file, max(int64(len(file)), cdc.WholePart), func() int { return 1 + max(0, piece) })
		require.True(t, bytes.Equal(file, out))
	})
}
