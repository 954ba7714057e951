package sandbox

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox/internal/mountns"
)

// TestKernelProbes: those who ask at the same time whether an overlay has an upper do not take each other for one.
func TestKernelProbes(t *testing.T) {
	t.Cleanup(mountns.Enable())
	h, err := Open(t.Context(), filepath.Join(t.TempDir(), "home"), Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	_, err = h.Create(t.Context(), CreateRequest{Name: "w"})
	require.NoError(t, err)
	upper := h.catalog.Workspace("w").Upper
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 5 {
				if used, err := h.upperInUse(t.Context(), upper); used || err != nil {
					t.Error("in use: ", used, err)
				}
			}
		})
	}
	all.Wait()
}
