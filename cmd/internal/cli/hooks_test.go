package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox/api"
)

// TestWorktreeName holds that any name that a tool gives makes one of a workspace.
func TestWorktreeName(t *testing.T) {
	for _, name := range []string{"fix", "../../etc", "", "ÄÖ", "a b\n", strings.Repeat("x", 500), "-"} {
		got := worktreeName("/src/My Project", name)
		require.NoError(t, api.ValidWorkspaceName(got), got)
		require.NotEqual(t, got, worktreeName("/other/My Project", name))
	}
}
