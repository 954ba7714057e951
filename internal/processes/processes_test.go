package processes

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEach(t *testing.T) {
	found := false
	Each(func(dir string, pid int) bool {
		found = found || pid == os.Getpid()
		require.Equal(t, "/proc/"+strconv.Itoa(pid), dir)
		return !found
	})
	require.True(t, found)
}

// TestNoAnswer holds that a question which is not answered is asked once, and that there is a bound on them.
func TestNoAnswer(t *testing.T) {
	hang := make(chan struct{})
	calls := 0
	ask := func(string) { calls++; <-hang }
	require.False(t, answers("a", ask))
	require.False(t, answers("a", ask))
	require.Equal(t, 1, calls)
	require.True(t, answers("b", func(string) {}))

	asked.Add(maxUnanswered - 1)
	require.False(t, answers("c", func(string) {}))
	asked.Add(1 - maxUnanswered)

	close(hang)
	require.Eventually(t, func() bool { return asked.Load() == 0 }, patience*50, patience/100)
	require.True(t, answers("a", func(string) {}))
}
