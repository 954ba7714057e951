// Package hooks has a tool that people or agents work with run a command of snapfs after each of its steps, and takes
// that away again: byte for byte, where the tool has not written its files anew since.
//
// A tool has one JSON file (json.go), or is git, whose hooks are scripts (git.go). Files are replaced at once, and keep
// their mode and their owner (file.go). commits.go is about the worktrees that a hook has made.
package hooks

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"snapfs/sandbox/api"
)

// Action is what a hook has snapfs do.
type Action string

// The actions.
const (
	Turn           Action = "turn"
	WorktreeCreate Action = "worktree-create"
	WorktreeRemove Action = "worktree-remove"
)

// hookTool is a program that runs commands of ours after its steps.
type hookTool struct {
	name   string
	file   string      // below the directory, of a tool that has one JSON file
	events []hookEvent // of that file
	empty  string      // what the file is as if it were when it is missing
	nested bool        // an entry of an event has a list of commands
}

// hookEvent is an event of a tool, and what is then done.
type hookEvent struct {
	name   string
	action Action
}

// hookTools are the tools, but for git. A file that we made is known by its blanks, which nobody else writes. Sources of
// the formats:
//   - Claude Code: https://code.claude.com/docs/en/hooks; settings.local.json is not to be committed
//   - Codex: https://developers.openai.com/codex/hooks; hooks.json beside a config.toml, with the same schema
//   - Cursor: https://cursor.com/docs/hooks; .cursor/hooks.json, version 1
var hookTools = []hookTool{
	{"claude-code", ".claude/settings.local.json", []hookEvent{
		{"PostToolUse", Turn},
		{"PostToolUseFailure", Turn}, // PostToolUse is for tools that succeed
		{"Stop", Turn},
		{"WorktreeCreate", WorktreeCreate},
		{"WorktreeRemove", WorktreeRemove},
	}, "{ \n}\n", true},
	{"codex", ".codex/hooks.json", []hookEvent{{"PostToolUse", Turn}, {"Stop", Turn}}, "{ \n}\n", true},
	{"cursor", ".cursor/hooks.json", []hookEvent{
		{"afterFileEdit", Turn}, {"afterShellExecution", Turn}, {"stop", Turn},
	}, "{ \n  \"version\": 1\n}\n", false},
}

// Names are the tools, sorted.
func Names() []string { return []string{"claude-code", "codex", "cursor", "git"} }

// Change has a tool run a program after its steps, or takes that away.
type Change struct {
	Tool      string // one of Names()
	Dir       string // of the project; absolute, without symbolic links
	Program   string // a shell's words, up to the verb; empty takes the hooks away
	Worktrees bool   // worktrees as well, of a tool that has these
	// Note is told what stays as it is.
	Note func(format string, args ...any)
}

// Make changes the files of the tool, and gives those that it has changed. Errors: api.ErrNotFound, api.ErrConflict.
func (c Change) Make(ctx context.Context) ([]string, error) {
	if c.Tool == "git" {
		return c.git(ctx)
	}
	return c.file(ctx)
}

// file changes the JSON file of a tool. One that is made is none for git to commit.
func (c Change) file(ctx context.Context) ([]string, error) {
	i := slices.IndexFunc(hookTools, func(t hookTool) bool { return t.name == c.Tool })
	t := hookTools[i]
	t.events = slices.DeleteFunc(slices.Clone(t.events), func(e hookEvent) bool { return e.action != Turn && !c.Worktrees })
	f := hookFile{dir: c.Dir, name: t.file, empty: t.empty, mode: 0o644}
	_, missing := os.Lstat(f.path())
	files := []string{}
	changed, err := f.rewrite(func(text string) (string, error) { return t.edit(text, c.Program) })
	if err != nil {
		return files, err
	}
	if changed {
		files = append(files, f.path())
	}
	if c.Program != "" && missing == nil {
		return files, nil
	}
	exclude, err := excludeHooks(ctx, c.Dir, t.file, c.Program != "")
	if err != nil {
		c.Note("warning: git's list of files that it passes over stays as it is: %v", err)
	} else if exclude != "" {
		files = append(files, exclude)
	}
	return files, nil
}

// worktreeByGit makes a worktree as gitWorktree does, in a shell, and prints where it is.
const worktreeByGit = `cd "${CLAUDE_PROJECT_DIR:-.}" || exit; ` +
	`n=$(sed -n 's/.*"\(worktree_\)\{0,1\}name": *"\([^"]*\)".*/\2/p' | tr -c 'A-Za-z0-9\n' -); w=$PWD/.claude/worktrees/${n:?}; ` +
	`[ -d "$w" ] || git worktree add -q -b "worktree-$n" "$w" >&2 || git worktree add -q "$w" "worktree-$n" >&2 || exit; echo "$w"; exit`

// hookLine is the command that a tool runs in a shell. It succeeds also where snapfs is gone.
func hookLine(program, tool string, action Action) string {
	line := fmt.Sprintf("%s hook %s %s", program, tool, action)
	if action == WorktreeCreate {
		return program + " version >/dev/null 2>&1 || { " + worktreeByGit + "; }; " + line
	}
	return line + " 2>/dev/null || true"
}

// hookLineEnd is how commands of ours end for a tool, and no others, as a regular expression.
func hookLineEnd(tool string) string {
	return fmt.Sprintf(` hook %s (?:%s 2>/dev/null \|\| true|%s|%s 2>/dev/null \|\| true)`,
		regexp.QuoteMeta(tool), Turn, WorktreeCreate, WorktreeRemove)
}

// isHookLine reports whether a command is ours.
func isHookLine(tool, command string) bool {
	return regexp.MustCompile(hookLineEnd(tool) + `$`).MatchString(command)
}

// conflict is api.ErrConflict with the reason.
func conflict(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{api.ErrConflict}, args...)...)
}

// below reports whether a path is a directory, or in it.
func below(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
