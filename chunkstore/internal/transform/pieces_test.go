package transform

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/goflate"
	"snapfs/internal/testseed"
	"snapfs/internal/varint"
	"snapfs/internal/zdeflate"
)

// undo appends a run to dst. Pieces are made from their stored form, the last one first.
func undo(dst []byte, run Run, inner []byte) ([]byte, error) {
	if run.Pieces == nil {
		return run.Codec.Undo(dst, inner, run.Len)
	}
	p := varint.Parser{Rest: run.Pieces.Append(nil)}
	pieces := ParsePieces(&p, run.Len, int64(len(inner)))
	if p.Bad || len(p.Rest) > 0 || pieces == nil {
		return nil, corrupt.Errorf("pieces do not parse")
	}
	out := make([]byte, run.Len)
	for i := pieces.Count() - 1; i >= 0; i-- {
		lo, hi := pieces.Needs(i)
		b, err := pieces.Make(i, inner[lo:hi])
		if err != nil {
			return nil, err
		}
		off, end := pieces.Span(i)
		if int64(len(b)) != end-off || pieces.Find(off) != i || pieces.Find(end-1) != i {
			return nil, corrupt.Errorf("piece %d has %d bytes from %d to %d", i, len(b), off, end)
		}
		copy(out[off:], b)
	}
	return append(dst, out...), nil
}

// mixture is data of several kinds, of which parts repeat near and far.
func mixture(r *rand.Rand, n int) []byte {
	var b []byte
	for len(b) < n {
		k := 1 + r.IntN(60_000)
		switch r.IntN(6) {
		case 0:
			b = append(b, sample.Noise(r.Int64(), k/4)...)
		case 1:
			b = append(b, make([]byte, k/4)...)
		case 2, 3:
			b = append(b, sample.Prose(r.Int64(), k)...)
		default:
			if at := max(0, len(b)-1-r.IntN(100_000)); len(b) > 0 {
				b = append(b, b[at:min(len(b), at+k)]...)
			}
		}
	}
	return b[:n]
}

// TestDivide checks that pieces of streams by all encoders are those of the streams.
func TestDivide(t *testing.T) {
	r := rand.New(rand.NewPCG(testseed.Of(t), 0))
	var encoders []encoder
	for _, level := range []int{1, 2, 3, 4, 6, 9} {
		encoders = append(encoders, goWith(level), zlibWith(level, 8))
	}
	odd := zlibWith(6, 9)
	odd.WindowBits = 12
	filtered := zlibWith(6, 8)
	filtered.Strategy = zdeflate.Filtered
	encoders = append(encoders, odd, filtered)
	text := sample.Prose(1, 400_000)
	whole := text[:6*goflate.FastBlock] // ends with a full block
	var raw bytes.Buffer
	require.NoError(t, goWith(1).deflate(&raw, whole, anyWork))
	require.Equal(t, 3, divide(goWith(1), raw.Bytes(), whole).Count())
	for _, e := range encoders {
		for i, data := range [][]byte{text[:300_000], mixture(r, 200_000+r.IntN(100_000))} {
			var raw bytes.Buffer
			require.NoError(t, e.deflate(&raw, data, anyWork))
			pieces := divide(e, raw.Bytes(), data)
			name := fmt.Sprintf("%+v of %d", e, len(data))
			require.NotNil(t, pieces, name)
			require.GreaterOrEqual(t, pieces.Count(), 2, name)
			t.Log(name, pieces.Count(), "pieces")
			got, err := undo(nil, Run{Len: int64(raw.Len()), Pieces: pieces}, data)
			require.NoError(t, err, name)
			require.True(t, bytes.Equal(raw.Bytes(), got), name)

			if i > 0 || e.Level != 1 && e.Level != 6 {
				continue
			}
			wrong := bytes.Clone(raw.Bytes())
			wrong[r.IntN(len(wrong))] ^= 1 << r.IntN(8)
			require.Nil(t, divide(e, wrong, data), "a bit is wrong")
			require.Nil(t, divide(e, append(wrong[:0:0], append(raw.Bytes(), 0)...), data), "a byte too many")
			require.Nil(t, divide(e, raw.Bytes()[:raw.Len()-1], data), "a byte is missing")
		}
	}
	require.Nil(t, divide(goWith(6), []byte{3, 0}, nil))
}

// TestDividedFiles checks files of which a stream is divided.
func TestDividedFiles(t *testing.T) {
	text := sample.Prose(3, 700_000)
	loose := fmt.Appendf(nil, "blob %d\x00", len(text))
	var gz bytes.Buffer
	gz.Write([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3})
	e := zlibWith(6, 8)
	e.wrap = gzipFooter
	require.NoError(t, e.deflate(&gz, text, anyWork))
	for name, file := range map[string][]byte{
		"loose": zlibStream(t, append(loose, text...), 1),
		"gzip":  gz.Bytes(),
		"two":   append(gz.Bytes(), gz.Bytes()...),
	} {
		runs := splitRuns(t, file, whole)
		require.NotEmpty(t, runs, name)
		for _, r := range runs {
			require.Equal(t, Deflate, r.codec, name)
			require.True(t, bytes.Equal(text, r.parts[0]), "%s: contents are those of a file", name)
		}
	}
	section := sample.Compressed(len(text), sample.GoZlib(t, text))
	runs := splitRuns(t, sample.ELF(t, sample.Section{Flags: 1 << 11, Data: section}), whole)
	require.Len(t, runs, 1)
	require.Equal(t, Deflate, runs[0].codec)
}

// FuzzPieces parses pieces and makes all that parse.
func FuzzPieces(f *testing.F) {
	data := sample.Prose(1, 500_000)
	for _, e := range []encoder{goWith(1), goWith(2), goWith(6), zlibWith(1, 8), zlibWith(6, 8)} {
		var raw bytes.Buffer
		if err := e.deflate(&raw, data, anyWork); err != nil {
			f.Fatal(err)
		}
		p := divide(e, raw.Bytes(), data)
		f.Add(p.Append(nil), uint32(raw.Len()), uint32(len(data)))
	}
	f.Fuzz(func(t *testing.T, b []byte, n, inner uint32) {
		size := min(int64(inner), int64(len(data)))
		p := ParsePieces(&varint.Parser{Rest: b}, int64(n), size)
		if p == nil {
			return
		}
		for i := range p.Count() {
			lo, hi := p.Needs(i)
			off, end := p.Span(i)
			if off < 0 || off >= end || end > int64(n) || lo < 0 || lo > hi || hi > size {
				t.Fatalf("piece %d from %d to %d is made of %d to %d", i, off, end, lo, hi)
			}
			out, err := p.Make(i, data[lo:hi])
			if err == nil && int64(len(out)) != end-off {
				t.Fatalf("piece %d has %d bytes", i, len(out))
			}
			if err != nil && !errors.Is(err, corrupt.Err) {
				t.Fatal(err)
			}
		}
	})
}
