package sparse_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/sparse"
	"snapfs/internal/testseed"
)

// TestWriter writes random runs of zeros and of other bytes in random pieces.
func TestWriter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testseed.Of(t), 0))
	for range 50 {
		var want []byte
		for range rnd.IntN(6) {
			run := make([]byte, rnd.IntN(3*4096))
			if rnd.IntN(2) == 0 {
				for i := range run {
					run[i] = byte(rnd.IntN(3))
				}
			}
			want = append(want, run...)
		}
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		require.NoError(t, err)
		w := sparse.NewWriter(f)
		for rest := want; len(rest) > 0; {
			n := 1 + rnd.IntN(len(rest))
			wrote, err := w.Write(rest[:n])
			require.NoError(t, err)
			require.Equal(t, n, wrote)
			rest = rest[n:]
		}
		require.NoError(t, f.Truncate(int64(len(want))))
		got, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		require.NoError(t, f.Close())
	}
}

// TestHoles holds that zeros take no room.
func TestHoles(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // what was written counts
	w := sparse.NewWriter(f)
	_, err = w.Write(append(make([]byte, 1<<20), 1))
	require.NoError(t, err)
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Fd()), &st))
	require.Equal(t, int64(1<<20+1), st.Size)
	require.Less(t, st.Blocks*512, int64(1<<19))
}
