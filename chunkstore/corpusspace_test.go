package chunkstore

import (
	"context"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
)

// closedSize closes a store and returns the allocated bytes of its directory.
func closedSize(t *testing.T, s *Store) int64 {
	t.Helper()
	require.NoError(t, s.Close())
	n, err := allocatedIn(s.dir)
	require.NoError(t, err)
	return n
}

// TestCorpusSpace reports, for the corpus in $SNAPFS_CORPUS (see TestCorpus), what Optimize saves after storing in the
// background, and what is left when only the newest tree is kept, compared with storing that alone.
func TestCorpusSpace(t *testing.T) {
	corpus := os.Getenv("SNAPFS_CORPUS")
	if corpus == "" {
		t.Skip("SNAPFS_CORPUS is not set")
	}
	ctx := context.Background()
	steps, err := filepath.Glob(filepath.Join(corpus, "*"))
	require.NoError(t, err)
	sort.Strings(steps)
	last := steps[len(steps)-1]
	// $SNAPFS_CORPUS_STORE keeps what was stored for the next run.
	dir := filepath.Join(t.TempDir(), "store")
	stored := os.Getenv("SNAPFS_CORPUS_STORE")
	if stored != "" {
		if _, err := os.Stat(stored); err == nil {
			require.NoError(t, os.CopyFS(dir, os.DirFS(stored)))
		}
	}
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	list, err := s.Manifests(ctx)
	require.NoError(t, err)
	if len(list) == 0 {
		files := map[string]version{}
		for _, step := range steps {
			storeStep(t, s, step, files, true)
		}
		if stored != "" {
			require.NoError(t, s.Close())
			require.NoError(t, os.CopyFS(stored, os.DirFS(dir)))
			s, err = Open(dir, Options{})
			require.NoError(t, err)
		}
	}
	before := closedSize(t, s)

	s, err = Open(dir, Options{})
	require.NoError(t, err)
	cpu := cpuTime(t)
	st, err := s.Optimize(ctx, nil)
	require.NoError(t, err)
	cpu = cpuTime(t) - cpu
	if os.Getenv("SNAPFS_VERIFY") != "" {
		requireClean(t, s)
	}
	after := closedSize(t, s)
	t.Logf("stored %d, optimized %d: %.2f %% less, cpu %v, %+v", before, after,
		100*float64(before-after)/float64(before), cpu, st)

	s, err = Open(dir, Options{})
	require.NoError(t, err)
	old, err := s.Manifests(ctx)
	require.NoError(t, err)
	newest, _, _ := storeStep(t, s, last, map[string]version{}, true)
	for _, m := range old {
		deleteManifest(t, s, m.ID)
	}
	_, err = s.GC(ctx, nil)
	require.NoError(t, err)
	requireClean(t, s)
	st2, err := s.Stats(ctx)
	require.NoError(t, err)
	require.Equal(t, newest.Size, st2.Logical)
	left := closedSize(t, s)
	fresh, err := Open(filepath.Join(t.TempDir(), "fresh"), Options{})
	require.NoError(t, err)
	storeStep(t, fresh, last, map[string]version{}, true)
	alone := closedSize(t, fresh)
	t.Logf("only the newest: %d, stored fresh %d: %.2f times", left, alone, float64(left)/float64(alone))
	require.LessOrEqual(t, left*10, alone*13)
}
