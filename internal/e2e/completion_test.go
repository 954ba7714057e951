package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompletion types tabs in interactive shells, without their configuration. Completion asks the daemon for names, and
// starts none.
func TestCompletion(t *testing.T) {
	h := newHome(t)
	h.ok("create", "app")
	h.ok("create", "apple")
	built := h.ok("snapshot", "app", "--name", "built")
	h.ok("snapshot", "apple", "--name", "built")
	h.ok("create", "strange")
	odd := h.ok("snapshot", "strange", "--name", "odd name; $(touch run) it's")
	h.write("notes", "")
	typed := func(shell, begin, line string) string {
		t.Helper()
		input := h.write("input", begin+"\n"+line+"\nexit\n")
		r := process(t, soon, h.tmp, append(h.env, "TERM=dumb", "PATH="+filepath.Dir(snapfs)+":"+os.Getenv("PATH")),
			"bash", "-c", `script -qec "$1" /dev/null <"$2"`, "script", shell, input)
		return r.out
	}
	for shell, begin := range map[string]string{
		"bash --norc -i": `source <(snapfs completion bash)`,
		"zsh -f -i":      `autoload -Uz compinit; compinit -u -D; source <(snapfs completion zsh)`,
	} {
		h.ok("create", "other")
		for line, want := range map[string]string{
			"snapfs --json show app:bui\t":               `"id": "` + built + `"`,
			"snapfs --quiet rollback apple bu\t":         h.snapshot("apple:built").ID,
			"snapfs snapshots --json --workspace=appl\t": `"workspace": "apple"`,
			"snapfs dest\toth\t && echo $((6 * 7))":      "42",
			"snapfs --json show strange:od\t":            `"id": "` + odd + `"`,
			"snapfs --json show strange:odd\\ na\t":      `"id": "` + odd + `"`,
			"snapfs destroy nosuch\t; echo $((6 * 7))":   "42",
		} {
			if out := typed(shell, begin, line); !strings.Contains(out, want) {
				t.Errorf("%s, %q: %s", shell, line, out)
			}
		}
	}
	// Fish completes without a terminal.
	fish := func(line string) string {
		return process(t, soon, h.tmp, append(h.env, "PATH="+filepath.Dir(snapfs)+":"+os.Getenv("PATH")), "fish", "--no-config",
			"-c", fmt.Sprintf("snapfs completion fish | source; complete -C '%s' | string split -f1 \\t", line)).out
	}
	require.Equal(t, "app:built\napple:built\n", fish("snapfs restore ap"))
	require.Equal(t, "built\n", fish("snapfs rollback apple b"))
	require.Equal(t, "app\napple\n", fish("snapfs umount ap"))
	require.Equal(t, "apple\napple:built\n", fish("snapfs ls appl"))
	require.Equal(t, "apple\napple:built\n", fish("snapfs mount --read-only appl"))
	require.Equal(t, "notes\n", fish("snapfs run -- cat no"))
	require.Equal(t, "notes\n", fish("snapfs cp -r app:built:/x no"))

	require.NoFileExists(t, h.path("run"))
	h.ok("stop")
	require.Empty(t, fish("snapfs restore ap"))
	h.fails(7, "no daemon", "status")
}
