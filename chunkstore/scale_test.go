package chunkstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Size of the store of TestScale with $SNAPFS_SCALE, which names a directory for it: in an empty one the store is only
// made, to be copied and measured by further runs. Without it, a hundredth.
const (
	scaleManifests = 10_000
	scaleChunks    = 500 // new ones of a manifest, which has as many of the one before
)

// fillScale makes manifests of tiny chunks.
func fillScale(t *testing.T, s *Store, manifests int) {
	t.Helper()
	ctx := context.Background()
	r := rand.New(rand.NewPCG(80, 81))
	var last [scaleChunks][24]byte
	for n := range manifests {
		in, err := s.NewIngest(ctx, IngestOptions{Kind: KindDocument})
		require.NoError(t, err)
		for i := range last {
			for k := range 2 {
				if k == 1 || n == 0 {
					for w := range 3 {
						binary.LittleEndian.PutUint64(last[i][w*8:], r.Uint64())
					}
				}
				require.NoError(t, in.Hint(Hint{Path: "f", Size: int64(len(last[i]))}))
				_, err = in.Write(last[i][:])
				require.NoError(t, err)
			}
		}
		_, err = in.Commit(ctx, nil)
		require.NoError(t, err)
		if n%1000 == 999 {
			t.Log(n+1, "manifests")
		}
	}
}

// resident returns the resident memory of this process in MiB after a garbage collection, and how much of it is file
// pages.
func resident(t *testing.T) string {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	var all []string
	for line := range strings.Lines(string(b)) {
		for _, k := range []string{"VmRSS", "RssAnon", "RssFile"} {
			if strings.HasPrefix(line, k) {
				all = append(all, strings.Join(strings.Fields(line), " "))
			}
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("%s, heap %d MiB", strings.Join(all, ", "), m.HeapAlloc>>20)
}

// TestScale opens, lists, accounts for and collects a store with many manifests and chunks.
func TestScale(t *testing.T) {
	unraced(t)
	ctx := context.Background()
	dir, manifests := os.Getenv("SNAPFS_SCALE"), scaleManifests
	if dir == "" {
		dir, manifests = t.TempDir(), scaleManifests/100
	}
	timed := func(what string, fn func()) time.Duration {
		cpu, start := cpuTime(t), time.Now()
		fn()
		took := time.Since(start)
		t.Logf("%s: %v, CPU %v; %s", what, took.Round(time.Millisecond), (cpuTime(t) - cpu).Round(time.Millisecond),
			resident(t))
		return took
	}
	var s *Store
	open := func() {
		timed("open", func() {
			var err error
			s, err = Open(dir, Options{})
			require.NoError(t, err)
		})
	}
	open()
	list, err := s.Manifests(ctx)
	require.NoError(t, err)
	if len(list) == 0 {
		timed("fill", func() { fillScale(t, s, manifests) })
		timed("close", func() { require.NoError(t, s.Close()) })
		if os.Getenv("SNAPFS_SCALE") != "" {
			return
		}
		open()
	}
	timed("list", func() { list, err = s.Manifests(ctx); require.NoError(t, err) })
	require.Len(t, list, manifests)
	var st Stats
	stats := func() {
		st, err = s.Stats(ctx)
		require.NoError(t, err)
	}
	timed("stats", stats)
	timed("stats again", stats)
	t.Logf("%+v; index %.1f bytes per chunk", st, float64(st.Index)/float64(st.Chunks))
	remove := func(ids []Manifest) {
		for len(ids) > 0 {
			n := min(len(ids), 1000)
			require.NoError(t, s.Update(ctx, true, func(tx *Tx) error {
				for _, m := range ids[:n] {
					if err := tx.DeleteManifest(m.ID); err != nil {
						return err
					}
				}
				return nil
			}))
			ids = ids[n:]
		}
	}
	collect := func(what string, ids []Manifest) {
		timed("delete "+what, func() { remove(ids) })
		timed("collect "+what, func() {
			got, err := s.GC(ctx, nil)
			require.NoError(t, err)
			t.Logf("%+v", got)
		})
	}
	collect("nothing", nil)
	collect("a hundredth", list[:manifests/100])
	collect("half", list[manifests/100:manifests/2])
	collect("nothing", nil)
	timed("stats", stats)
	t.Logf("%+v; index %.1f bytes per chunk", st, float64(st.Index)/float64(st.Chunks))
	timed("close", func() { require.NoError(t, s.Close()) })
	open()
	timed("stats", stats)
	t.Logf("%+v; index %.1f bytes per chunk", st, float64(st.Index)/float64(st.Chunks))
	timed("close", func() { require.NoError(t, s.Close()) })
}
