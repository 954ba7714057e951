package chunkstore

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// version is a file of a corpus as it was last stored.
type version struct {
	ino   uint64
	where Range
}

// TestCorpus stores the steps of the corpus in $SNAPFS_CORPUS (a directory of directories, unchanged files hard-linked
// from one to the next). It stores the changed files of each step as one manifest, and reports time and space.
func TestCorpus(t *testing.T) {
	corpus := os.Getenv("SNAPFS_CORPUS")
	if corpus == "" {
		t.Skip("SNAPFS_CORPUS is not set")
	}
	steps, err := filepath.Glob(filepath.Join(corpus, "*"))
	require.NoError(t, err)
	sort.Strings(steps)
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { _ = s.Close() }()
	files := map[string]version{}
	var taken int64
	var ids []ID
	var used time.Duration
	start := time.Now()
	for _, step := range steps {
		m, n, cpu := storeStep(t, s, step, files, os.Getenv("SNAPFS_BACKGROUND") != "")
		ids = append(ids, m.ID)
		taken += n
		used += cpu
	}
	wall := time.Since(start)
	st, err := s.Stats(context.Background())
	require.NoError(t, err)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	t.Logf("%d steps, %.1f MB changed, %v, cpu %v, %.0f MB/s of cpu; %+v; heap %d MB", len(steps), float64(taken)/1e6,
		wall.Round(time.Millisecond), used.Round(time.Millisecond), float64(taken)/1e6/used.Seconds(), st, mem.Sys>>20)
	if os.Getenv("SNAPFS_VERIFY") != "" {
		last := steps[len(steps)-1]
		n := 0
		for path, v := range files {
			want, err := os.ReadFile(filepath.Join(last, path))
			if err != nil {
				continue // deleted
			}
			r, err := s.OpenManifest(context.Background(), v.where.Manifest)
			require.NoError(t, err)
			got := make([]byte, v.where.Len)
			_, err = r.ReadAt(got, v.where.Off)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got), path)
			require.NoError(t, r.Close())
			n++
		}
		t.Logf("verified %d files", n)
	}
	s.blocks.clear()
	start, cpu := time.Now(), cpuTime(t)
	var total int64
	for _, id := range ids {
		r, err := s.OpenManifest(context.Background(), id)
		require.NoError(t, err)
		n, err := r.WriteTo(io.Discard)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		total += n
	}
	t.Logf("read %.1f MB in %v: %.0f MB/s of cpu", float64(total)/1e6, time.Since(start),
		float64(total)/1e6/(cpuTime(t)-cpu).Seconds())
	require.NoError(t, s.Close())
	sum := int64(0)
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		sum += st.Blocks * 512
		rel, _ := filepath.Rel(dir, path)
		t.Logf("%10d %s", st.Blocks*512, rel)
		return nil
	}))
	t.Logf("allocated %d", sum)
	start = time.Now()
	s, err = Open(dir, Options{})
	require.NoError(t, err)
	t.Logf("opened in %v", time.Since(start))
	require.NoError(t, s.Close())
}

// storeStep stores the files of a step that differ from files. It returns how many bytes these are and the processor
// time, without that of finding them.
func storeStep(t *testing.T, s *Store, step string, files map[string]version, background bool) (Manifest, int64,
	time.Duration,
) {
	t.Helper()
	ctx := context.Background()
	type file struct {
		path string
		ino  uint64
		hint Hint
	}
	var changed []file
	require.NoError(t, filepath.WalkDir(step, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		rel, _ := filepath.Rel(step, path)
		old, ok := files[rel]
		if ok && old.ino == st.Ino {
			return nil
		}
		h := Hint{Path: rel, Size: st.Size}
		if ok {
			h.Prev = []Range{old.where}
		}
		changed = append(changed, file{path, st.Ino, h})
		return nil
	}))
	start := cpuTime(t)
	in, err := s.NewIngest(ctx, IngestOptions{Kind: KindImage, Background: background})
	require.NoError(t, err)
	defer in.Abort()
	at := int64(0)
	buf := make([]byte, 256<<10)
	for _, c := range changed {
		require.NoError(t, in.Hint(c.hint))
		f, err := os.Open(c.path)
		require.NoError(t, err)
		// Without the wrapper io.Copy would take a buffer of its own for each file.
		n, err := io.CopyBuffer(in, struct{ io.Reader }{f}, buf)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		files[c.hint.Path] = version{c.ino, Range{Off: at, Len: n}}
		at += n
	}
	m, err := in.Commit(ctx, nil)
	require.NoError(t, err)
	used := cpuTime(t) - start
	for _, c := range changed {
		v := files[c.hint.Path]
		v.where.Manifest = m.ID
		files[c.hint.Path] = v
	}
	return m, at, used
}

func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var r unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
