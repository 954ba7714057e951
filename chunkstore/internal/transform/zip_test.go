package transform

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/zdeflate"
)

// coverage splits a file and gives the bytes of its runs, and the bodies.
func coverage(t testing.TB, file []byte) (covered int64, bodies map[string]bool) {
	t.Helper()
	bodies = map[string]bool{}
	runs := splitRuns(t, file, func() int { return 100_000 })
	require.Equal(t, splitRuns(t, file, whole), runs)
	for _, r := range runs {
		covered += r.out
		for _, b := range r.parts[1:] {
			bodies[string(b)] = true
		}
	}
	return covered, bodies
}

// goZip writes a zip file as programs in Go do.
func goZip(t testing.TB, files [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	_, err := w.Create("directory/")
	require.NoError(t, err)
	for i, f := range files {
		h := &zip.FileHeader{Name: fmt.Sprintf("directory/file%d", i), Method: zip.Deflate}
		if i%5 == 4 {
			h.Method = zip.Store
		}
		e, err := w.CreateHeader(h)
		require.NoError(t, err)
		_, err = e.Write(f)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// TestZip looks into zip files of several writers.
func TestZip(t *testing.T) {
	var files [][]byte
	dir := t.TempDir()
	for i := range 24 {
		files = append(files, sample.Prose(int64(i), 300+i*i*100))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("file%d", i)), files[i], 0o600))
	}
	python := func(options string) []byte {
		name := filepath.Join(t.TempDir(), "zip")
		cmd := exec.CommandContext(t.Context(), "python3", "-c",
			"import os,sys,zipfile\nwith zipfile.ZipFile(sys.argv[1],'w',zipfile.ZIP_DEFLATED"+options+
				") as z:\n for f in sorted(os.listdir(sys.argv[2])): z.write(os.path.join(sys.argv[2],f),f)", name, dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		return b
	}
	for _, options := range []string{"", ",compresslevel=9", ",compresslevel=1"} {
		file := python(options)
		covered, bodies := coverage(t, file)
		require.Greater(t, covered, int64(len(file)*8/10), options)
		for _, f := range files {
			require.True(t, bodies[string(f)], options)
		}
	}
	file := goZip(t, files)
	_, bodies := coverage(t, file)
	for i, f := range files {
		// A stored entry behind its descriptor ends what can be found without the directory.
		require.Equal(t, i < 4, bodies[string(f)], "go, file %d", i)
	}
	for range 3 {
		splitRuns(t, file[:rand.Intn(len(file))], whole)
	}
	h := python("")
	for name, spoil := range map[string]func(b []byte){
		"encrypted": func(b []byte) { b[6] |= 1 },
		"method":    func(b []byte) { b[8] = 99 },
		"size":      func(b []byte) { b[22]++ },
		"huge":      func(b []byte) { binary.LittleEndian.PutUint32(b[18:], 1<<31) },
		"name":      func(b []byte) { binary.LittleEndian.PutUint16(b[26:], 1<<16-1) },
		"data":      func(b []byte) { b[60] ^= 1 },
	} {
		b := bytes.Clone(h)
		spoil(b)
		t.Log(name)
		splitRuns(t, b, whole)
	}
}

// pngOf makes a PNG file of the rows of an image, in IDAT chunks of some size.
func pngOf(t testing.TB, rows []byte, p zdeflate.Params, piece int) []byte {
	t.Helper()
	var z bytes.Buffer
	require.NoError(t, zdeflate.Zlib(&z, rows, p))
	out := []byte(pngMagic)
	chunk := func(kind string, data []byte) {
		out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
		at := len(out)
		out = append(append(out, kind...), data...)
		out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[at:]))
	}
	chunk("IHDR", make([]byte, 13))
	for data := z.Bytes(); len(data) > 0; data = data[min(piece, len(data)):] {
		chunk("IDAT", data[:min(piece, len(data))])
	}
	chunk("IEND", nil)
	return out
}

// TestPNG looks into images.
func TestPNG(t *testing.T) {
	rows := bytes.Repeat(sample.Prose(1, 50_000), 4) // further apart than the window of deflate
	for _, p := range []zdeflate.Params{
		{Level: 6, MemLevel: 8, WindowBits: 15},
		{Level: 9, MemLevel: 9, WindowBits: 15, Strategy: zdeflate.Filtered},
		{Level: 5, MemLevel: 8, WindowBits: 13, Strategy: zdeflate.Filtered},
	} {
		for _, piece := range []int{8192, 1 << 20} {
			file := pngOf(t, rows, p, piece)
			covered, bodies := coverage(t, file)
			require.Greater(t, covered, int64(len(file)-100), "%+v", p)
			require.True(t, bodies[string(rows)])
		}
	}
	good := pngOf(t, rows, zdeflate.Params{Level: 6, MemLevel: 8, WindowBits: 15}, 8192)
	sum := bytes.Clone(good)
	sum[8+25+8+8192] ^= 1
	length := bytes.Clone(good)
	length[8+25] = 0x7f
	for name, file := range map[string][]byte{
		"checksum": sum,
		"length":   length,
		"cut":      good[:len(good)-1000],
		"noise":    pngOf(t, sample.Noise(1, 100_000), zdeflate.Params{Level: 6, MemLevel: 8, WindowBits: 15}, 8192),
		"bomb":     pngOf(t, make([]byte, 4<<20), zdeflate.Params{Level: 6, MemLevel: 8, WindowBits: 15}, 8192),
	} {
		require.Empty(t, splitRuns(t, file, whole), name)
	}
	im := image.NewRGBA(image.Rect(0, 0, 200, 200))
	for i := range 40_000 {
		im.Set(i%200, i/200, color.RGBA{uint8(i), uint8(i * i >> 8), uint8(i % 7), 255})
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, im))
	splitRuns(t, b.Bytes(), whole)
}
