package chunkstore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDeleteBesideStats deletes a manifest while the space of the store is counted: the transaction has the index when
// the count has begun and waits for it. Neither waits for the other for ever, and the next count is without the
// manifest.
func TestDeleteBesideStats(t *testing.T) {
	const most = time.Minute
	var s *Store
	counted := make(chan error, 1)
	armed := false
	s, err := Open(t.TempDir(), Options{Points: func(point string) {
		if !armed || point != "transaction committed" {
			return
		}
		armed = false
		go func() {
			_, err := s.livePayload(context.Background())
			counted <- err
		}()
		for end := time.Now().Add(most); s.liveSet.mu.TryLock(); time.Sleep(time.Millisecond) {
			s.liveSet.mu.Unlock()
			if time.Now().After(end) {
				t.Error("the count does not begin")
				return
			}
		}
	}})
	require.NoError(t, err)
	text := make([]byte, 100<<10)
	var ids []ID
	for i := range 3 {
		for j := range text {
			text[j] = byte((j*j + i*j) >> 3)
		}
		ids = append(ids, put(t, s, nil, part{"file", text, nil}).ID)
	}
	deleteManifest(t, s, ids[0]) // from here on there is garbage, and payload must be counted
	before, err := s.Stats(t.Context())
	require.NoError(t, err)
	s.liveChanged() // all is counted anew

	armed = true
	deleted := make(chan error, 1)
	go func() {
		deleted <- s.Update(context.Background(), true, func(tx *Tx) error { return tx.DeleteManifest(ids[1]) })
	}()
	for _, end := range []chan error{deleted, counted} {
		select {
		case err := <-end:
			require.NoError(t, err)
		case <-time.After(most):
			t.Fatal("the transaction and the count wait for each other")
		}
	}
	after, err := s.Stats(t.Context())
	require.NoError(t, err)
	require.Less(t, after.Payload, before.Payload)
	requireClean(t, s)
	require.NoError(t, s.Close())
}
