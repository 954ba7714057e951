package chunkstore

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/chunkstore/internal/pack"
)

// TestRepair damages a pack: what Check names is isolated, the rest stays readable, and lost contents can be stored
// again.
func TestRepair(t *testing.T) {
	ctx := context.Background()
	r := rand.New(rand.NewPCG(60, 61))
	dir := t.TempDir()
	s := openTest(t, dir)
	ids, want := history(t, s, r, 8)
	require.NoError(t, s.Close())
	path := filepath.Join(dir, packsName, pack.Name(1))
	flip(t, path, pack.HeaderSize+1000)
	s, err := Open(dir, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	good, bad := readable(t, s, ids, want)
	require.NotEmpty(t, bad)
	problems, err := s.Check(ctx, CheckOptions{ReadData: true, Repair: true})
	require.NoError(t, err)
	require.Equal(t, bad, problems[0].Manifests)
	again, _ := readable(t, s, ids, want)
	require.Equal(t, good, again)

	m := put(t, s, nil, part{"again", want[0], nil})
	require.True(t, bytes.Equal(want[0], readAll(t, s, m.ID)))
	deleteManifest(t, s, bad...)
	_, err = s.GC(ctx, nil)
	require.NoError(t, err)
	requireClean(t, s)
	require.True(t, bytes.Equal(want[0], readAll(t, s, m.ID)))
}
