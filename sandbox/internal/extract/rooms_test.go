package extract

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRooms: names and directories of all calls together are bounded, and each call has some.
func TestRooms(t *testing.T) {
	const calls = 50
	names, dirs := int64(0), int64(0)
	for range calls {
		r := newRoom()
		defer r.leave()
		for r.names.Try(1) {
		}
		for r.dirs.Try(1) {
		}
		require.GreaterOrEqual(t, r.names.Held(), int64(ownNames))
		require.GreaterOrEqual(t, r.dirs.Held(), int64(ownDirs))
		names += r.names.Held()
		dirs += r.dirs.Held()
	}
	require.LessOrEqual(t, names, int64(poolNames+calls*ownNames))
	require.LessOrEqual(t, dirs, int64(poolDirs+calls*ownDirs))
}

func TestSizeClass(t *testing.T) {
	for n, want := range map[int64]int{1: 12, 4096: 12, 4097: 13, 1 << 22: 22, 1<<22 - 1: 22, 1<<22 + 1: 22, 1 << 50: 22} {
		require.Equal(t, want, sizeClass(n), "%d", n)
	}
}
