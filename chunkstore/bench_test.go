package chunkstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkSmallCommit edits one file of 10 KB again and again: the latency of a small snapshot.
func BenchmarkSmallCommit(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	data := text(rand.New(rand.NewPCG(1, 1)), 10<<10)
	m, err := tryPut(s, nil, part{"a.go", data, nil})
	for i := 0; b.Loop() && err == nil; i++ {
		data = bytes.Clone(data)
		copy(data[i%9000:], fmt.Sprintf("edit %d", i))
		m, err = tryPut(s, nil, part{"a.go", data, []Range{{m.ID, 0, m.Size}}})
	}
	if err != nil {
		b.Fatal(err)
	}
	st, err := s.Stats(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(st.Payload)/float64(st.Manifests), "payload-B/op")
}

// BenchmarkKnown stores contents that the store has.
func BenchmarkKnown(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	data := part{"a", noise(rand.New(rand.NewPCG(2, 2)), 16<<20), nil}
	b.SetBytes(int64(len(data.data)))
	for b.Loop() {
		if _, err := tryPut(s, nil, data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKnownTree stores a tree of small files again, each with its previous version.
func BenchmarkKnownTree(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	rnd := rand.New(rand.NewPCG(3, 3))
	const files, size = 4000, 10 << 10
	parts := make([]part, files)
	for i := range parts {
		parts[i] = part{fmt.Sprintf("dir/%d.go", i), noise(rnd, size), nil}
	}
	m, err := tryPut(s, nil, parts...)
	if err != nil {
		b.Fatal(err)
	}
	for i := range parts {
		parts[i].prev = []Range{{m.ID, int64(i) * size, size}}
	}
	b.SetBytes(files * size)
	start := cpuTime(b)
	for b.Loop() {
		if _, err := tryPut(s, nil, parts...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*files*size/1e6/(cpuTime(b)-start).Seconds(), "MB/cpu-s")
}

// BenchmarkNewFiles stores 200,000 different files of 100 bytes, or $SNAPFS_FILES, and reports what the first and the
// last tenth of them take.
func BenchmarkNewFiles(b *testing.B) {
	files := 200_000
	if n, err := strconv.Atoi(os.Getenv("SNAPFS_FILES")); err == nil {
		files = n
	}
	for b.Loop() {
		s, err := Open(b.TempDir(), Options{})
		require.NoError(b, err)
		in, err := s.NewIngest(b.Context(), IngestOptions{Kind: KindImage})
		require.NoError(b, err)
		r := rand.New(rand.NewPCG(5, 5))
		tenths := []time.Duration{cpuTime(b)}
		for i := range files {
			require.NoError(b, in.Hint(Hint{Path: "f", Size: 100}))
			_, err := in.Write(noise(r, 100))
			require.NoError(b, err)
			if i%(files/10) == files/10-1 {
				tenths = append(tenths, cpuTime(b))
			}
		}
		_, err = in.Commit(b.Context(), nil)
		require.NoError(b, err)
		require.NoError(b, s.Close())
		each := func(i int) float64 { return float64((tenths[i+1] - tenths[i]).Microseconds()) / float64(files/10) }
		b.ReportMetric(each(0), "first-cpu-µs/file")
		b.ReportMetric(each(len(tenths)-2), "last-cpu-µs/file")
	}
}

// TestIngestMemory stores noise in the background, 2 GB of it with $SNAPFS_LONG, and bounds the memory that takes.
func TestIngestMemory(t *testing.T) {
	unraced(t)
	size := 64 << 20
	if os.Getenv("SNAPFS_LONG") != "" {
		size = 2 << 30
	}
	s, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage, Background: true})
	require.NoError(t, err)
	defer in.Abort()
	rnd := rand.New(rand.NewPCG(4, 4))
	buf := make([]byte, 1<<20)
	for done := 0; done < size; done += len(buf) {
		if done%(64<<20) == 0 {
			require.NoError(t, in.Hint(Hint{Path: fmt.Sprintf("%d.bin", done), Size: 64 << 20}))
		}
		for i := 0; i < len(buf); i += 8 {
			binary.LittleEndian.PutUint64(buf[i:], rnd.Uint64())
		}
		_, err := in.Write(buf)
		require.NoError(t, err)
	}
	_, err = in.Commit(t.Context(), nil)
	require.NoError(t, err)
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	t.Logf("%d MB stored, resident at most %d MiB, CPU %v", size/1e6, u.Maxrss>>10, cpuTime(t))
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	require.Less(t, mem.Sys>>20, uint64(512), "MiB taken by the Go heap")
}
