package chunkstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
)

// TestBadFormat opens stores with FORMAT changed. What is damaged is refused as such, and rebuilding the index mends it.
// A later version is refused in any case.
func TestBadFormat(t *testing.T) {
	unraced(t)
	from := filepath.Join(t.TempDir(), "store")
	ids, want, recs := busyStore(t, from, rand.New(rand.NewPCG(82, 83)))
	text, later := formatText(formatVersion), formatText(formatVersion+1)
	type files map[string]string
	tests := []struct {
		files files
		class error
	}{
		{files{formatName: later, formatCopy: copyText(formatVersion + 1)}, ErrVersion},
		{files{formatName: later, formatCopy: ""}, ErrVersion},
		{files{formatName: text, formatCopy: copyText(formatVersion + 1)}, ErrVersion},
		{files{formatName: "", formatCopy: copyText(99)}, ErrVersion},
		{files{formatName: later}, ErrFormat},
		{files{formatName: formatText(0)}, ErrFormat},
		{files{formatName: ""}, ErrFormat},
		{files{formatName: text[:10]}, ErrFormat},
		{files{formatName: "something else\n"}, ErrFormat},
		{files{formatName: text + "x"}, ErrFormat},
		{files{formatName: "junk", formatCopy: "junk"}, ErrFormat},
		{files{formatCopy: "junk"}, nil},
	}
	flips := 3
	if os.Getenv("SNAPFS_LONG") != "" {
		flips = len(text)
	}
	r := rand.New(rand.NewPCG(testseed.Of(t), 84))
	for i := range flips {
		b := []byte(text)
		at := r.IntN(len(b))
		if i == 0 {
			at = len(b) - 2 // the version
		}
		b[at] ^= 1 << r.IntN(8)
		class := ErrFormat
		if string(b) == formatText(1) {
			class = nil // which is raised
		}
		tests = append(tests, struct {
			files files
			class error
		}{files{formatName: string(b)}, class})
	}
	for _, test := range tests {
		dir := filepath.Join(t.TempDir(), "store")
		require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
		for name, text := range test.files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		for _, readOnly := range []bool{true, false} {
			s, err := Open(dir, Options{ReadOnly: readOnly})
			if test.class == nil {
				require.NoError(t, err)
				require.NoError(t, s.Close())
				continue
			}
			require.ErrorIs(t, err, test.class, "%q", test.files)
		}
		_, err := RebuildIndex(t.Context(), dir, RebuildOptions{})
		if test.class != nil && errors.Is(test.class, ErrVersion) {
			require.ErrorIs(t, err, test.class, "%q", test.files)
			require.Equal(t, test.files[formatName], format(t, dir))
			continue
		}
		require.NoError(t, err, "%q", test.files)
		require.Equal(t, text, format(t, dir))
		requireRebuilt(t, dir, ids, want, recs)
	}
	foreign := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(foreign, formatName), []byte("mine"), 0o600))
	_, err := RebuildIndex(t.Context(), foreign, RebuildOptions{})
	require.ErrorIs(t, err, ErrFormat)
	require.Equal(t, "mine", format(t, foreign))
}

// TestFlippedCount holds that COUNT and LOCK are safeguards only.
func TestFlippedCount(t *testing.T) {
	unraced(t)
	dir := filepath.Join(t.TempDir(), "store")
	ids, want, recs := busyStore(t, dir, rand.New(rand.NewPCG(85, 86)))
	for at := range int64(counterSize) {
		flip(t, filepath.Join(dir, counterName), at)
		require.NoError(t, os.WriteFile(filepath.Join(dir, lockName), []byte{0xff}, 0o600))
		s, err := Open(dir, Options{})
		require.NoError(t, err)
		require.NoError(t, s.Update(t.Context(), true, func(tx *Tx) error { return tx.Put("names", "7", []byte("anew")) }))
		require.NoError(t, s.Close())
	}
	requireRebuilt(t, dir, ids, want, recs)
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
	unraced(t)
	from := filepath.Join(t.TempDir(), "store")
	ids, want, recs := busyStore(t, from, rand.New(rand.NewPCG(80, 81)))
	require.Equal(t, formatText(formatVersion), format(t, from))
	for _, name := range []string{formatName, formatCopy} {
		info, err := os.Stat(filepath.Join(from, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode(), name) // a daemon has no umask
	}
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
