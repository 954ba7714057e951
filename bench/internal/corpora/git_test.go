package corpora

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/progress"
)

func TestGitHistory(t *testing.T) {
	repo := t.TempDir()
	g := program.Setup{Dir: repo, Env: []string{
		"GIT_AUTHOR_NAME=t",
		"GIT_AUTHOR_EMAIL=t@t",
		"GIT_COMMITTER_NAME=t",
		"GIT_COMMITTER_EMAIL=t@t",
		"GIT_CONFIG_GLOBAL=/dev/null",
	}}
	require.NoError(t, g.Run(t.Context(), "git", "init", "--quiet"))
	for i := range 7 {
		require.NoError(t, os.WriteFile(filepath.Join(repo, "f"), bytes.Repeat([]byte{'x'}, i+1), 0o644))
		require.NoError(t, g.Run(t.Context(), "git", "add", "f"))
		require.NoError(t, g.Run(t.Context(), "git", "commit", "--quiet", "-m", "c"))
	}
	h, err := Commits(t.Context(), repo, 3, 2, filepath.Join(t.TempDir(), "git"), progress.New(os.Stderr))
	require.NoError(t, err)
	require.Len(t, h.States, 2)
	for i, want := range []string{"xxxx", "xxxxxxx"} {
		got, err := os.ReadFile(filepath.Join(h.States[i], "f"))
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
}
