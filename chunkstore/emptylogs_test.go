package chunkstore

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEmptyLogs removes empty logs that Badger, after a flush, may remove at the same time.
func TestEmptyLogs(t *testing.T) {
	dir := t.TempDir()
	for n := range 300 {
		require.NoError(t, os.WriteFile(memLogPath(dir, n+1), nil, 0o600))
	}
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		both.Go(func() { errs[i] = removeEmptyLogs(dir) })
	}
	both.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
