package chunkstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// TestProcessors: numbers, cuts and contents do not depend on how many processors store a stream.
func TestProcessors(t *testing.T) {
	seed := testseed.Of(t)
	r := rand.New(rand.NewPCG(seed, 1))
	var old, next []part
	for i := range 800 {
		data := text(r, []int{50, 3000, 20_000, 300_000}[r.IntN(4)/(1+i%3)])
		if i%7 == 0 && i > 0 {
			data = old[r.IntN(i)].data
		}
		old = append(old, part{fmt.Sprintf("d%d/f%d", i%10, i), data, nil})
	}
	type result struct {
		first, second Manifest
		runs          []run
	}
	store := func(procs int) result {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		s, err := Open(t.TempDir(), Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		first := put(t, s, nil, old...)
		next = next[:0]
		off := int64(0)
		for i, p := range old {
			n := int64(len(p.data))
			changed := p.data
			if i%5 == 0 {
				changed = bytes.Replace(p.data, []byte("e"), []byte("ee"), 3)
			}
			next = append(next, part{p.path, changed, []Range{{first.ID, off, n}}})
			off += n
		}
		second := put(t, s, nil, next...)
		m, err := s.manifest(second.ID)
		require.NoError(t, err)
		var want []byte
		for _, p := range next {
			want = append(want, p.data...)
		}
		require.True(t, bytes.Equal(want, readAll(t, s, second.ID)))
		requireClean(t, s)
		return result{first, second, m.runs}
	}
	want := store(1)
	for _, procs := range []int{2, 8} {
		require.Equal(t, want, store(procs), "%d processors", procs)
	}
}

// TestPipelinesTogether: the batches of all ingests together are bounded, and each ingest goes on.
func TestPipelinesTogether(t *testing.T) {
	const ingests = 8
	s := openTest(t, t.TempDir())
	var all []*Ingest
	total := int64(0)
	for range ingests {
		in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		defer in.Abort()
		all = append(all, in)
		for in.pipe.mine.Try(1) {
			total++
		}
		require.GreaterOrEqual(t, in.pipe.mine.Held(), int64(batchReserve))
	}
	require.LessOrEqual(t, total, int64(2*(runtime.GOMAXPROCS(0)+1)+ingests*batchReserve))
	for _, in := range all {
		in.pipe.mine.Leave()
	}
	var done sync.WaitGroup
	for i, in := range all {
		done.Go(func() {
			r := rand.New(rand.NewPCG(5, uint64(i)))
			for range 12 {
				if _, err := in.Write(noise(r, batchBytes)); err != nil {
					t.Error(err)
					return
				}
			}
			in.Abort()
		})
	}
	done.Wait()
	for _, in := range all {
		require.Zero(t, in.pipe.mine.Held())
	}
}

// TestPipelineFails: an error of a later stage reaches the caller, and the ingest can be given up at any time.
func TestPipelineFails(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	s := openTest(t, t.TempDir())
	for _, batches := range []int{0, 1, 5, 20} {
		in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
		require.NoError(t, err)
		require.NoError(t, in.Hint(Hint{Path: "f", Size: -1}))
		for range batches {
			_, err := in.Write(noise(r, batchBytes))
			require.NoError(t, err)
		}
		in.Abort()
	}
	in, err := s.NewIngest(t.Context(), IngestOptions{Kind: KindImage})
	require.NoError(t, err)
	defer in.Abort()
	boom := errors.New("boom")
	in.setFailed(boom)
	for range 100 {
		if _, err = in.Write(noise(r, batchBytes)); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, boom)
	_, err = in.Commit(t.Context(), nil)
	require.ErrorIs(t, err, boom)
}
