package chunkstore

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestCorpusReads reports, for the corpus in $SNAPFS_CORPUS (see TestCorpus), the cost of reading the newest tree,
// after it was stored in the background and again after Optimize: 4 KiB at random offsets, each after dropping all
// caches of the store and of the kernel, and all files one after the other.
func TestCorpusReads(t *testing.T) {
	corpus := os.Getenv("SNAPFS_CORPUS")
	if corpus == "" {
		t.Skip("SNAPFS_CORPUS is not set")
	}
	ctx := context.Background()
	steps, err := filepath.Glob(filepath.Join(corpus, "*"))
	require.NoError(t, err)
	sort.Strings(steps)
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	files := map[string]version{}
	for _, step := range steps {
		storeStep(t, s, step, files, true)
	}
	last := map[string]Range{}
	for path, v := range files {
		if _, err := os.Lstat(filepath.Join(steps[len(steps)-1], path)); err == nil && v.where.Len > 0 {
			last[path] = v.where
		}
	}
	for _, when := range []string{"stored", "optimized"} {
		if when == "optimized" {
			_, err := s.Optimize(ctx, nil)
			require.NoError(t, err)
		}
		require.NoError(t, s.Close())
		s, err = Open(dir, Options{})
		require.NoError(t, err)
		readCorpus(t, s, when, last)
	}
	require.NoError(t, s.Close())
}

func readCorpus(t *testing.T, s *Store, when string, files map[string]Range) {
	t.Helper()
	ctx := context.Background()
	readers := map[ID]*Reader{}
	var paths []string
	total := int64(0)
	for path, rg := range files {
		paths = append(paths, path)
		total += rg.Len
		if readers[rg.Manifest] == nil {
			r, err := s.OpenManifest(ctx, rg.Manifest)
			require.NoError(t, err)
			defer func() { require.NoError(t, r.Close()) }()
			readers[rg.Manifest] = r
		}
	}
	sort.Strings(paths)
	buf := make([]byte, 1<<20)
	start, cpu := time.Now(), cpuTime(t)
	for _, path := range paths {
		rg := files[path]
		for n := int64(0); n < rg.Len; n += int64(len(buf)) {
			_, err := readers[rg.Manifest].ReadAt(buf[:min(int64(len(buf)), rg.Len-n)], rg.Off+n)
			require.NoError(t, err)
		}
	}
	wall, used := time.Since(start), cpuTime(t)-cpu
	t.Logf("%s: %d files, %.1f MB one after the other in %v, %v of cpu: %.0f MB/s, %.0f MB/s of cpu", when,
		len(paths), float64(total)/1e6, wall.Round(time.Millisecond), used.Round(time.Millisecond),
		float64(total)/1e6/wall.Seconds(), float64(total)/1e6/used.Seconds())

	const seed, reads = 1, 2000
	r := rand.New(rand.NewPCG(seed, 0))
	var walls, cpus []time.Duration
	for range reads {
		at := r.Int64N(total) // each byte of the tree is as likely
		path := ""
		for _, path = range paths {
			if at < files[path].Len {
				break
			}
			at -= files[path].Len
		}
		dropCaches(t, s)
		rg := files[path]
		start, cpu := time.Now(), cpuTime(t)
		_, err := readers[rg.Manifest].ReadAt(buf[:min(4096, rg.Len-at)], rg.Off+at)
		walls, cpus = append(walls, time.Since(start)), append(cpus, cpuTime(t)-cpu)
		require.NoError(t, err, path)
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	t.Logf("%s: 4 KiB cold, wall p50 %v p95 %v p99 %v worst %v; cpu p50 %v p99 %v", when, walls[reads/2],
		walls[reads*95/100],
		walls[reads*99/100], walls[reads-1], cpus[reads/2], cpus[reads*99/100])
}

// dropCaches makes a store as cold as a new process finds it, but for the index's own tables.
func dropCaches(t *testing.T, s *Store) {
	t.Helper()
	s.blocks.clear()
	s.pages.clear()
	s.manifests.clear()
	s.segments.clear()
	s.transforms.clear()
	names, err := filepath.Glob(filepath.Join(s.dir, packsName, "*"))
	require.NoError(t, err)
	for _, name := range names {
		f, err := os.Open(name)
		require.NoError(t, err)
		require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		require.NoError(t, f.Close())
	}
}
