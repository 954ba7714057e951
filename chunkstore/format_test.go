package chunkstore

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBadFormat(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, openTest(t, dir).Close())
	text := formatText(formatVersion)
	for text, class := range map[string]error{
		"": ErrCorrupt, text[:10]: ErrCorrupt, "something else\n": ErrCorrupt, text + "x": ErrCorrupt,
		formatText(0): ErrVersion, formatText(formatVersion + 1): ErrVersion, formatText(99): ErrVersion,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, formatName), []byte(text), 0o600))
		for _, readOnly := range []bool{false, true} {
			_, err := Open(dir, Options{ReadOnly: readOnly})
			require.ErrorIs(t, err, class, text)
		}
		_, err := RebuildIndex(context.Background(), dir, RebuildOptions{})
		require.ErrorIs(t, err, class, text)
		b, err := os.ReadFile(filepath.Join(dir, formatName))
		require.NoError(t, err)
		require.Equal(t, text, string(b))
	}
}

// format is the content of a store's FORMAT.
func format(t *testing.T, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, formatName))
	require.NoError(t, err)
	return string(b)
}

// TestRaiseFormat opens a store of version 1. Reading leaves the version, and writing raises it before the journal is
// touched. So does rebuilding the index.
func TestRaiseFormat(t *testing.T) {
	from := filepath.Join(t.TempDir(), "store")
	ids, want, recs := busyStore(t, from, rand.New(rand.NewPCG(80, 81)))
	require.Equal(t, formatText(formatVersion), format(t, from))
	require.NoError(t, os.WriteFile(filepath.Join(from, formatName), []byte(formatText(1)), 0o600))

	dir := filepath.Join(t.TempDir(), "opened")
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	s, err := Open(dir, Options{ReadOnly: true})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Equal(t, formatText(1), format(t, dir))
	var seen []string
	s, err = Open(dir, Options{Points: func(point string) {
		switch point {
		case "packs open", "version raised":
			seen = append(seen, point, format(t, dir))
		}
	}})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Equal(t, []string{"packs open", formatText(1), "version raised", formatText(formatVersion)}, seen)
	requireRebuilt(t, dir, ids, want, recs)

	dir = filepath.Join(t.TempDir(), "rebuilt")
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	_, err = RebuildIndex(context.Background(), dir, RebuildOptions{points: func(point string) {
		if point == "index rebuilt" {
			require.Equal(t, formatText(formatVersion), format(t, dir))
		}
	}})
	require.NoError(t, err)
	requireRebuilt(t, dir, ids, want, recs)
}
