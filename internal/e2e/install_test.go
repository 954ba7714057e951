package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// place puts a copy of a program at a path below the test's directory.
func (h *home) place(program, path string) string {
	h.t.Helper()
	text, err := os.ReadFile(program)
	require.NoError(h.t, err)
	path = h.path(path)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(h.t, os.WriteFile(path, text, 0o755))
	return path
}

// TestInstalled: the command works as 'make install' lays it out, through a link, and as one file. The client alone
// says what is missing.
func TestInstalled(t *testing.T) {
	h := newHome(t)
	do := func(program string, args ...string) result {
		return process(t, soon, h.tmp, h.env, append([]string{program}, args...)...)
	}
	works := func(program string) {
		t.Helper()
		for _, args := range [][]string{
			{"up", "ws", h.path("ws")},
			{"snapshot", "ws"},
			{"umount", "ws"},
			{"destroy", "ws"},
			{"stop"},
			{"check", "--rebuild-index"},
		} {
			r := do(program, args...)
			require.Zero(t, r.code, "%q: %s", args, r.err)
		}
	}

	client := h.place(snapfs, "alone/snapfs")
	require.Zero(t, do(client, "version").code)
	for _, args := range [][]string{{"create", "ws"}, {"serve"}} {
		r := do(client, args...)
		require.Equal(t, 7, r.code, "%q", args)
		require.Contains(t, r.err, "engine is missing", "%q", args)
		require.Empty(t, r.out)
	}
	require.NoDirExists(t, h.dir)

	client = h.place(snapfs, "prefix/bin/snapfs")
	h.place(complete, "prefix/libexec/snapfs/snapfs-engine")
	works(client)
	link := h.path("sbin/snapfs")
	require.NoError(t, os.Mkdir(filepath.Dir(link), 0o755))
	require.NoError(t, os.Symlink(client, link))
	works(link)

	works(h.place(complete, "onefile/snapfs"))
}
