//go:build !race

package sandbox_test

import (
	"testing"

	"snapfs/sandbox"
	"snapfs/sandbox/apitest"
)

// TestAPI is left to package daemon under the race detector: there the same calls come to a Home of the same process.
func TestAPI(t *testing.T) {
	apitest.Run(t, func(t *testing.T, dir string, remount bool) sandbox.API {
		h, err := sandbox.Open(t.Context(), dir, sandbox.Options{Remount: remount})
		if err != nil {
			t.Fatal(err)
		}
		return h
	})
}
