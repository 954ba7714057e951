package fairshare_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/fairshare"
	"snapfs/internal/testseed"
)

// TestFair: beyond its reserve a member has as much as it leaves free, and each has its reserve in any case.
func TestFair(t *testing.T) {
	p := fairshare.New(8)
	take := func(m *fairshare.Member) (n int64) {
		for m.Try(1) {
			n++
		}
		return n
	}
	for i, want := range []int64{2 + 4, 2 + 2, 2 + 1, 2, 2, 2} {
		require.Equal(t, want, take(p.Join(2)), "member %d", i)
	}
}

// TestWaits: what is given back goes to the member that has least.
func TestWaits(t *testing.T) {
	p := fairshare.New(8)
	rich, poor := p.Join(1), p.Join(1)
	for rich.Try(1) {
	}
	require.Equal(t, int64(5), rich.Held())
	for poor.Try(1) {
	}
	require.Equal(t, int64(3), poor.Held())
	poor.Give(1)
	require.True(t, poor.Try(1), "it is free")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- rich.Take(ctx, 1) }()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	go func() { ended <- poor.Take(t.Context(), 1) }()
	rich.Leave()
	require.NoError(t, <-ended)
	require.Equal(t, int64(4), poor.Held())
	require.Zero(t, rich.Held())
}

// TestBound: whatever members do at a time, they have no more than the pool and their reserves, and each goes on.
func TestBound(t *testing.T) {
	const size, members, reserve = 20, 6, 5
	seed := testseed.Of(t)
	p := fairshare.New(size)
	var mu sync.Mutex
	total, most := int64(0), int64(0)
	count := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		total += n
		most = max(most, total)
	}
	var all sync.WaitGroup
	for i := range members {
		m := p.Join(reserve)
		for k := range 3 {
			r := rand.New(rand.NewPCG(seed, uint64(i*3+k)))
			all.Go(func() {
				for range 2000 {
					n := 1 + r.Int64N(reserve)
					if err := m.Take(t.Context(), n); err != nil {
						t.Error(err)
						return
					}
					count(n)
					count(-n)
					m.Give(n)
				}
			})
		}
	}
	all.Wait()
	require.LessOrEqual(t, most, int64(size+members*reserve))
}
