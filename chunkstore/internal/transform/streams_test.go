package transform

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/corrupt"
	"snapfs/chunkstore/internal/frame"
	"snapfs/chunkstore/internal/sample"
	"snapfs/internal/testseed"
	"snapfs/internal/zdeflate"
)

// runOf is a run that came out of a Splitter.
type runOf struct {
	codec Codec
	out   int64
	parts [][]byte
}

// splitRuns runs a file through a Splitter in pieces, checks that what comes out makes the file again, and gives the
// runs.
func splitRuns(t testing.TB, file []byte, piece func() int) []runOf {
	t.Helper()
	var out []byte
	var runs []runOf
	r := NewSplitter(context.Background(), make(chan struct{}, 1), packedSize, func(p []byte) error {
		out = append(out, p...)
		return nil
	}, func(run Run, parts [][]byte) error {
		kept := make([][]byte, 0, len(parts))
		for _, p := range parts {
			kept = append(kept, bytes.Clone(p))
		}
		runs = append(runs, runOf{run.Codec, run.Len, kept})
		var err error
		out, err = undo(out, run, bytes.Join(parts, nil))
		return err
	})
	r.Begin(int64(len(file)))
	for p := file; len(p) > 0; {
		n := min(len(p), max(1, piece()))
		w, err := r.Write(p[:n])
		require.NoError(t, err)
		require.Equal(t, n, w)
		p = p[n:]
	}
	require.NoError(t, r.Flush())
	require.True(t, bytes.Equal(file, out), "%d bytes became %d", len(file), len(out))
	return runs
}

// packedSize is the size of a zstd frame, as in the store.
func packedSize(b []byte) int { return len(frame.NewCodec().Encode(nil, b, nil, frame.Quick)) }

func whole() int { return 1 << 30 }

// zlibStream compresses with zlib's parameters.
func zlibStream(t testing.TB, data []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, zdeflate.Zlib(&b, data, zdeflate.Params{Level: level, MemLevel: 8, WindowBits: 15}))
	return b.Bytes()
}

// git runs git in a directory.
func git(t testing.TB, dir string, stdin []byte, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{
		"-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-C", dir,
	}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	require.NoError(t, err, "git %v", args)
	return string(out)
}

// TestLooseObjects looks into objects that git has written.
func TestLooseObjects(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, nil, "init", "-q")
	blobs := map[string][]byte{}
	for level := 1; level <= 9; level++ {
		for i, size := range []int{500, 20_000, 300_000} {
			data := sample.Prose(int64(10*level+i), size)
			id := git(t, dir, data, "-c", fmt.Sprint("core.looseCompression=", level), "hash-object", "-w", "--stdin")
			blobs[strings.TrimSpace(id)] = data
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), sample.Prose(1, 3000), 0o600))
	for i := range 30 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), []byte{byte(i)}, 0o600))
	}
	git(t, dir, nil, "add", ".")
	git(t, dir, nil, "commit", "-q", "-m", string(sample.Prose(2, 700)))
	git(t, dir, nil, "tag", "-a", "-m", string(sample.Prose(3, 500)), "v1")
	kinds := map[Codec]int{}
	objects, err := filepath.Glob(filepath.Join(dir, ".git/objects/??/*"))
	require.NoError(t, err)
	for _, name := range objects {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		runs := splitRuns(t, raw, func() int { return 1000 })
		id := filepath.Base(filepath.Dir(name)) + filepath.Base(name)
		if len(raw) < minFile {
			require.Empty(t, runs)
			continue
		}
		require.Len(t, runs, 1, "object %s", id)
		require.Equal(t, int64(len(raw)), runs[0].out)
		if want, ok := blobs[id]; ok {
			require.True(t, bytes.Equal(want, runs[0].parts[0]), "the contents of a blob alone")
		}
		kind := runs[0].codec
		if kind != Deflate {
			kind &^= looseLevel
		}
		kinds[kind]++
	}
	const long = 9 // blobs
	require.Equal(t, map[Codec]int{
		looseFirst: len(blobs) - long + 1, looseFirst + 16: 1, looseFirst + 32: 1, looseFirst + 48: 1, Deflate: long,
	}, kinds)
}

// TestNotLoose checks that what only looks like a loose object is left as it is.
func TestNotLoose(t *testing.T) {
	body := sample.Prose(1, 5000)
	object := func(head string) []byte { return zlibStream(t, append([]byte(head), body...), 1) }
	good := object("blob 5000\x00")
	require.Len(t, splitRuns(t, good, whole), 1)
	var stored bytes.Buffer
	w, err := zlib.NewWriterLevel(&stored, zlib.NoCompression)
	require.NoError(t, err)
	_, err = w.Write(append([]byte("blob 5000\x00"), body...))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 4
	sum := bytes.Clone(good)
	sum[len(sum)-1] ^= 1
	bomb := zlibStream(t, append([]byte("blob 8000000\x00"), make([]byte, 8_000_000)...), 1)
	for name, file := range map[string][]byte{
		"size":     object("blob 5001\x00"),
		"digits":   object("blob 05000\x00"),
		"sign":     object("blob +5000\x00"),
		"type":     object("blub 5000\x00"),
		"no head":  object(""),
		"negative": object("blob -5000\x00"),
		"tail":     append(bytes.Clone(good), 0),
		"cut":      good[:len(good)-1],
		"flipped":  flipped,
		"checksum": sum,
		"stored":   stored.Bytes(),
		"bomb":     bomb,
		"too long": zlibStream(t, append([]byte("blob 9000000\x00"), sample.Prose(3, 9_000_000)...), 1),
		"header":   append([]byte{0x78, 0x01}, sample.Noise(4, 1000)...),
	} {
		require.Empty(t, splitRuns(t, file, whole), name)
	}
}

// TestGzip looks into gzip files of several compressors.
func TestGzip(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	small := sample.Prose(1, 20_000)
	require.NoError(t, os.WriteFile(name, small[:8000], 0o600))
	out, err := exec.CommandContext(t.Context(), "gzip", "-9", "-k", "-c", name).Output()
	require.NoError(t, err)
	python := func(level int, data []byte) []byte {
		cmd := exec.CommandContext(t.Context(), "python3", "-c",
			fmt.Sprintf("import gzip,sys; sys.stdout.buffer.write(gzip.compress(sys.stdin.buffer.read(), %d))", level))
		cmd.Stdin = bytes.NewReader(data)
		out, err := cmd.Output()
		require.NoError(t, err)
		return out
	}
	golang := func(level int, data []byte) []byte {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, level)
		require.NoError(t, err)
		w.Name, w.Comment, w.Extra = "a name", "a comment", []byte("extra")
		_, err = w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	large := sample.Prose(2, 250_000)
	for name, file := range map[string][]byte{
		"program": out, "python 9": python(9, large), "python 6": python(6, large), "python 1": python(1, large),
		"go 6": golang(6, large), "go 9": golang(9, large), "go 1": golang(1, large), "members": append(python(9, small), golang(6, small)...),
	} {
		runs := splitRuns(t, file, func() int { return 5000 })
		n := int64(0)
		for _, r := range runs {
			n += r.out
		}
		require.Equal(t, int64(len(file)), n, name)
	}
	good := python(6, small)
	for name, file := range map[string][]byte{
		"cut":       good[:len(good)-1],
		"flags":     append([]byte("\x1f\x8b\x08\xff"), good[4:]...),
		"noise":     append([]byte(gzipMagic), sample.Noise(5, 10_000)...),
		"bomb":      python(9, make([]byte, 4<<20)),
		"long name": append([]byte("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x00"), bytes.Repeat([]byte("x"), 9000)...),
	} {
		require.Empty(t, splitRuns(t, file, whole), name)
	}
	require.Len(t, splitRuns(t, append(bytes.Clone(good), "tail"...), whole), 1, "bytes behind are stored as they are")
}

// TestStreamPieces checks that the runs do not depend on the pieces in which a file is written.
func TestStreamPieces(t *testing.T) {
	rnd := rand.New(rand.NewSource(int64(testseed.Of(t))))
	var file []byte
	for i := range 200 {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, 1)
		require.NoError(t, err)
		data := slices.Concat(sample.Prose(int64(i), rnd.Intn(10_000)), sample.Noise(int64(i), 5000))
		if i%100 == 0 {
			data = sample.Prose(int64(i), 600_000)
		}
		_, err = w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		file = append(file, b.Bytes()...)
	}
	want := splitRuns(t, file, whole)
	require.Greater(t, len(want), 8)
	require.Greater(t, len(file), heldStep)
	require.Equal(t, want, splitRuns(t, file, func() int { return rnd.Intn(50_000) }))
}

func TestRecipeBounds(t *testing.T) {
	data := sample.Prose(1, 10_000)
	e := zlibWith(6, 8)
	e.wrap = zlibFrame
	stream := zlibStream(t, data, 6)
	recipe := func(steps ...byte) []byte { return append([]byte{byte(len(steps))}, steps...) }
	good := append(recipe(appendStream(nil, []byte("head"), e, data[:20], len(data)-20, 0)...), data[20:]...)
	outLen := int64(len(stream) + 4)
	got, err := Recipe.Undo(nil, good, outLen)
	require.NoError(t, err)
	require.True(t, bytes.Equal(append([]byte("head"), stream...), got))
	level0 := e
	level0.Level = 0
	image := e
	image.wrap = imageData
	for name, inner := range map[string][]byte{
		"empty":        append(recipe(), data...),
		"no stream":    append(recipe(4, 'h', 'e', 'a', 'd'), data...),
		"level 0":      append(recipe(appendStream(nil, nil, level0, nil, len(data), 0)...), data...),
		"level 10":     append(recipe(0, 10, 8|6<<4, 0, 100), data[:100]...),
		"memory 0":     append(recipe(0, 6|1<<6, 6<<4, 0, 100), data[:100]...),
		"window":       append(recipe(0, 6|1<<6, 8|7<<4, 0, 100), data[:100]...),
		"go with more": append(recipe(0, 6|encGo, 8, 0, 100), data[:100]...),
		"long body":    append(recipe(appendStream(nil, nil, e, nil, len(data)+1, 0)...), data...),
		"short body":   append(recipe(appendStream(nil, nil, e, nil, len(data)-1, 0)...), data...),
		"chunk of 0":   append(recipe(appendStream(nil, nil, image, nil, len(data), 0)...), data...),
		"long recipe":  append([]byte{0xff, 0xff, 0xff, 0xff, 0x0f}, data...),
		"cut":          good[:15],
	} {
		for _, n := range []int64{outLen, 100, int64(len(inner))} {
			_, err := Recipe.Undo(nil, inner, n)
			require.ErrorIs(t, err, corrupt.Err, name)
		}
	}
	for _, t2 := range []Codec{3, looseFirst, looseFirst + 10, looseLast + 1, 255} {
		_, err := t2.Undo(nil, data, 1000)
		require.ErrorIs(t, err, corrupt.Err)
	}
}

func FuzzUndo(f *testing.F) {
	data := sample.Prose(1, 3000)
	e := zlibWith(6, 8)
	step := appendStream(nil, []byte("head"), e, nil, len(data), 0)
	f.Add(uint8(Recipe), append(append([]byte{byte(len(step))}, step...), data...), 1000)
	f.Add(uint8(looseFirst+6), data, 900)
	f.Fuzz(func(t *testing.T, codec uint8, inner []byte, outLen int) {
		if outLen > 1<<20 {
			return
		}
		out, err := Codec(codec).Undo(nil, inner, int64(outLen))
		if err != nil {
			require.ErrorIs(t, err, corrupt.Err)
			return
		}
		require.Len(t, out, outLen)
	})
}

// TestSmallStreams: the contents of a stream of unknown length take no more memory than they need.
func TestSmallStreams(t *testing.T) {
	for _, n := range []int{0, 100, 5000, 100_000, 3_000_000} {
		data := bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]
		b := append(zlibStream(t, data, 6), make([]byte, 1<<20)...)
		inner, _, _, _, err := inflateZlib(b, -1)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, inner))
		require.LessOrEqual(t, cap(inner), 3*n+2*firstInflated)
	}
}
