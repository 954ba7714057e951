package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/threeway"
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

// TestQuotaAndApply holds that the upper which an apply writes does not count as that of the target.
func TestQuotaAndApply(t *testing.T) {
	h := openTest(t, t.TempDir())
	_, err := h.Create(t.Context(), CreateRequest{Name: "w", Quota: api.Quota{Size: 1 << 30}})
	require.NoError(t, err)
	w := h.catalog.Workspace("w")
	acct := h.accounts.of(w, h.uppers.Work(w.Upper))
	acct.Remember(layers.Usage{Bytes: 1 << 29, Inodes: 1000})
	upper, err := h.uppers.CreateDurable(t.Context())
	require.NoError(t, err)
	a := &application{h: h, to: w}
	require.NoError(t, a.write(t.Context(), &threeway.Plan{}, w.Base, upper))
	used, known := acct.Used()
	require.GreaterOrEqual(t, used.Bytes, int64(1<<29))
	require.True(t, known)
	h.uppers.Discard(upper)
}
