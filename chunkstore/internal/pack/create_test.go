package pack

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCreateWhileRemoving appends records that fill a pack each, while full packs are removed: the pack that ends what
// was allocated ahead in the one before it may meet that one's end.
func TestCreateWhileRemoving(t *testing.T) {
	s := openSet(t, t.TempDir(), nil, false)
	rec := stored(1, minSize)
	done := make(chan struct{})
	var remover sync.WaitGroup
	remover.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			for num := range s.Sizes() {
				if _, ok := s.Retire(num); ok {
					if err := s.Remove(num); err != nil {
						t.Error(err)
					}
				}
			}
		}
	})
	defer remover.Wait()
	defer close(done)
	for range 2000 {
		var hold Holds
		at, err := s.Append(rec, &hold)
		require.NoError(t, err)
		s.Named(at.Pack, at.End())
		s.Drop(&hold, nil)
	}
}
