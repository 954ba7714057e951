package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/layers"
	"snapfs/sandbox/api"
)

// TestQuotaOfTheDead describes a workspace that has just been destroyed, as a list does that has begun before: another one
// of its name does not get its limits.
func TestQuotaOfTheDead(t *testing.T) {
	h := openTest(t, t.TempDir())
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Quota: api.Quota{Size: 1 << 20}})
	require.NoError(t, err)
	w := h.catalog.Workspace("w")
	_, err = h.Destroy(t.Context(), DestroyRequest{Ref: "w", Now: true})
	require.NoError(t, err)
	require.NotNil(t, h.describeQuota(w))
	_, err = h.Create(t.Context(), CreateRequest{Name: "w"})
	require.NoError(t, err)
	w = h.catalog.Workspace("w")
	require.Equal(t, layers.Usage{}, h.accounts.of(w, h.uppers.Work(w.Upper)).Limit())
}
