package hooks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox/api"
)

// texts are files of tools as others have written them.
var texts = []string{
	"{}", "{ }\n", "{\n}\n", `{"a": 1}`, "{\n  \"hooks\": {}\n}\n", "{\"hooks\": {\n}, \"b\": [1,  2]}",
	`{"hooks": {"Stop": [], "stop": [ ], "PostToolUse": [ {"hooks":[{"type":"command","command":"true"}]}], "afterFileEdit":[{"command":"x"}]}}`,
	"{\n\t\"permissions\": {\"allow\": [\"Bash(ls:*)\"]},\n\t\"hooks\" :{\"Stop\":[ {\"hooks\":[{\"type\":\"command\",\"command\":\"snapfs turn .\"}]}]} }\r\n",
	"// a comment\n{\"hooks\": { // of hooks\n \"Stop\": [ /* none */ ],\n}}\n",
	`{"text": "\n  \"hooks\": {", "hooks": {"WorktreeCreate": [{"matcher": "snapfs hook claude-code turn 2>/dev/null || true", "hooks": []}]}}`,
}

// TestHookFiles puts hooks into files and takes them out again: then they are as they were.
func TestHookFiles(t *testing.T) {
	for _, tool := range hookTools {
		for _, text := range append(texts, tool.empty) {
			for _, program := range []string{"snapfs", `'/odd "place"/snapfs' --home '/h\o"me'`} {
				with, err := tool.edit(text, program)
				require.NoError(t, err, text)
				root, err := parseHooks(with)
				require.NoError(t, err, with)
				require.True(t, tool.complete(root, program), with)
				require.Equal(t, json.Valid([]byte(text)), json.Valid([]byte(with)), with)
				again, err := tool.edit(with, program)
				require.NoError(t, err)
				require.Equal(t, with, again)
				other, err := tool.edit(with, "/other/snapfs")
				require.NoError(t, err)
				without, err := tool.edit(other, "")
				require.NoError(t, err)
				require.Equal(t, text, without)
				marked, err := tool.edit("\ufeff"+text, program)
				require.NoError(t, err)
				require.Equal(t, "\ufeff"+with, marked)
			}
		}
	}
}

// TestHookFilesRewritten takes hooks out of files that the tool has written anew, in its own way and with more in them.
func TestHookFilesRewritten(t *testing.T) {
	for _, tool := range hookTools {
		for _, text := range texts {
			if !json.Valid([]byte(text)) {
				continue
			}
			with, err := tool.edit(text, "snapfs")
			require.NoError(t, err)
			for _, indent := range []string{"", "  "} {
				anew := reindent(t, with, indent)
				same, err := tool.edit(anew, "snapfs")
				require.NoError(t, err)
				require.Equal(t, anew, same, "all is there already")
				without, err := tool.edit(anew, "")
				require.NoError(t, err)
				require.NotContains(t, without, "snapfs hook "+tool.name+" turn 2>/dev/null || true\"}")
				require.Equal(t, valueOf(t, text), valueOf(t, without))
			}
		}
	}
	// A command of somebody else that was put before or beside ours stays.
	claude := hookTools[0]
	with, err := claude.edit("{\"hooks\": {\"Stop\": []}}", "snapfs")
	require.NoError(t, err)
	for _, change := range []func(string) string{
		func(s string) string {
			return strings.Replace(s, `"Stop": [`, `"Stop": [{"hooks":[{"command":"mine"}]},`, 1)
		},
		func(s string) string { return strings.Replace(s, `{"hooks": [`, `{"hooks": [{"command":"mine"},`, 1) },
	} {
		changed := change(with)
		require.True(t, json.Valid([]byte(changed)))
		without, err := claude.edit(changed, "")
		require.NoError(t, err)
		require.True(t, json.Valid([]byte(without)), without)
		require.Contains(t, without, "mine")
		require.NotContains(t, without, "snapfs hook")
	}
}

func reindent(t *testing.T, text, indent string) string {
	var v any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	out, err := json.MarshalIndent(v, "", indent)
	require.NoError(t, err)
	return string(out)
}

// valueOf is what a file says, without events and hooks that are empty.
func valueOf(t *testing.T, text string) any {
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	if hooks, ok := v["hooks"].(map[string]any); ok {
		for event, list := range hooks {
			if entries, ok := list.([]any); ok && len(entries) == 0 {
				delete(hooks, event)
			}
		}
		if len(hooks) == 0 {
			delete(v, "hooks")
		}
	}
	return v
}

// TestHookFilesRefused holds that files which are damaged, or not as documented, stay as they are.
func TestHookFilesRefused(t *testing.T) {
	for _, text := range []string{
		"", "{", "[]", "null", "{} {}", "{\"hooks\": []}", "{\"hooks\": {\"Stop\": {}, \"stop\": 1}}", "{\"hooks\": {}, \"hooks\": {}}",
		"{\"hooks\": {\"Stop\": [], \"Stop\": [], \"stop\": [], \"stop\": []}}", "\xff", strings.Repeat("[", 100000),
	} {
		for _, tool := range hookTools {
			_, err := tool.edit(text, "snapfs")
			require.ErrorIs(t, err, api.ErrConflict, text)
		}
	}
}

// TestHookFilePlaces holds where files are looked for, and what is refused.
func TestHookFilePlaces(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	put := func(string) (string, error) { return "new", nil }
	clear := func(string) (string, error) { return "", nil }
	file := func(name string) hookFile { return hookFile{dir: dir, name: name, mode: 0o640} }

	changed, err := file("a/b/file").rewrite(put)
	require.NoError(t, err)
	require.True(t, changed)
	info, err := os.Stat(filepath.Join(dir, "a/b/file"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
	changed, err = file("a/b/file").rewrite(clear)
	require.NoError(t, err)
	require.True(t, changed)
	require.NoDirExists(t, filepath.Join(dir, "a/b"))

	// One of 0 bytes is as if it were missing, and one that changes meanwhile stays as it is.
	empty := hookFile{dir: dir, name: "zero", empty: "{}", mode: 0o640}
	require.NoError(t, os.WriteFile(empty.path(), nil, 0o444))
	changed, err = empty.rewrite(func(text string) (string, error) { return text + "new", nil })
	require.NoError(t, err)
	require.True(t, changed)
	info, err = os.Stat(empty.path())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o444), info.Mode())
	for _, name := range []string{"zero", "fresh"} {
		_, err = file(name).rewrite(func(string) (string, error) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "next"), []byte("others'"), 0o600))
			return "ours", os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, name))
		})
		require.ErrorIs(t, err, api.ErrConflict)
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, "others'", string(text))
	}

	require.NoError(t, os.WriteFile(filepath.Join(dir, "real"), []byte("old"), 0o600))
	require.NoError(t, os.Symlink("../real", filepath.Join(dir, "a/link")))
	_, err = file("a/link").rewrite(put)
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "real"))
	require.NoError(t, err)
	require.Equal(t, "new", string(text))

	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	for _, name := range []string{"out/file", "out/deep/file", "dangling", "loop", "a"} {
		_, err = file(name).rewrite(put)
		require.ErrorIs(t, err, api.ErrConflict, name)
	}
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, left)
}
