package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
)

// hookTools runs the hooks of tools as the tools do: the commands that their files name, in a shell.
type hookTools struct {
	*home
	at string // the project
}

func newHookTools(t *testing.T) hookTools {
	h := newHome(t)
	h.env = append(h.env, "PATH="+filepath.Dir(snapfs)+":"+os.Getenv("PATH"))
	return hookTools{h, h.path("app")}
}

// sh runs a script in the project, with what a tool says on its standard input.
func (h hookTools) sh(input, script string, args ...string) string {
	h.t.Helper()
	argv := append([]string{"bash", "-euc", `cd "$1"; input=$2; shift 2; printf %s "$input" | { ` + script + "\n}", "sh", h.at, input}, args...)
	r := process(h.t, soon, h.tmp, h.env, argv...)
	require.Zero(h.t, r.code, "%s: %s%s", script, r.out, r.err)
	return r.out
}

// commands are those of ours in a file of a tool, by events.
func (h hookTools) commands(file string) map[string]string {
	out := h.sh("", `python3 -c 'import json, sys
for event, entries in json.load(open(sys.argv[1]))["hooks"].items():
    for e in entries:
        for c in e.get("hooks", [e]):
            if " hook " in c["command"]: print(event, c["command"])' "$1"`, file)
	found := map[string]string{}
	for line := range strings.Lines(out) {
		event, command, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		found[event] = command
	}
	return found
}

func (h hookTools) turns() string { return h.ok("turns", "app", "--no-stat") }

// TestHooks installs the hooks of tools beside entries of others, has the commands that they name run with what the tools
// are documented to say, and takes them away again.
func TestHooks(t *testing.T) {
	h := newHookTools(t)
	h.ok("up", "app", h.at)
	const tree = `find . -type f ! -name step -print0 | sort -z | xargs -0 md5sum; find . -perm -100 -type f | sort`
	h.sh("", `mkdir .claude .cursor
		printf '{ "permissions": {"allow": ["Bash(ls:*)"]},\n\t"hooks" :{"Stop":[ {"hooks":[{"type":"command","command":"true"}]}],"PostToolUse": [ ] } }' > .claude/settings.local.json
		printf '{"version": 1, "hooks": {"stop": [{"command": "./audit.sh"}]}}\n' > .cursor/hooks.json`)
	before := h.sh("", tree)
	for _, tool := range []struct{ name, file, event, says string }{
		{"claude-code", ".claude/settings.local.json", "PostToolUse", `{"session_id": "abc123", "transcript_path": "/t.jsonl", "cwd": "` + h.at +
			`", "permission_mode": "default", "hook_event_name": "PostToolUse", "tool_name": "Write", "tool_input": {"file_path": "f", "content": "x"}}`},
		{"codex", ".codex/hooks.json", "Stop", `{"session_id": "a", "turn_id": "b", "cwd": "` + h.at +
			`", "hook_event_name": "Stop", "model": "m", "stop_hook_active": false}`},
		{"cursor", ".cursor/hooks.json", "afterFileEdit", `{"conversation_id": "c", "generation_id": "g", "hook_event_name": "afterFileEdit",
			"workspace_roots": ["` + h.at + `"], "file_path": "f", "edits": []}`},
	} {
		require.Equal(t, filepath.Join(h.at, tool.file), h.ok("hooks", "install", tool.name, h.at))
		require.Contains(t, h.turns(), "hooks install "+tool.name)
		once := h.sh("", `cat "$1"`, tool.file)
		require.Empty(t, h.ok("hooks", "install", tool.name, h.at))
		require.Equal(t, once, h.sh("", `cat "$1"`, tool.file), tool)
		command := h.commands(tool.file)[tool.event]
		answer := map[bool]string{true: "{}\n"}[tool.name != "claude-code"]
		require.Equal(t, answer, h.sh(tool.says, `echo "$2" > step; sh -c "$1"`, command, tool.name))
		require.Contains(t, h.turns(), tool.name+" "+tool.event)
		for _, says := range []string{
			"", "{", `[]`, `{"cwd": "/"}`, `{"cwd": "relative", "workspace_roots": ["/no/such"]}`, `{"cwd": 1}`,
			`{"cwd": "` + h.at + `", "hook_event_name": "a\nb\u0000\ufffdc", "tool_name": "` + strings.Repeat("x", 1<<16) + `"}`,
		} {
			require.Equal(t, answer, h.sh(says, `date +%N > step; sh -c "$1"`, command), says)
		}
		require.Contains(t, h.turns(), tool.name+" abc")
	}
	h.ok("undo", "app")
	require.NotEmpty(t, h.commands(".cursor/hooks.json"), "the hooks are no part of the first turn after them")
	log := h.read("home/hooks.log")
	require.Contains(t, log, "not JSON")
	require.Contains(t, log, "not absolute")
	require.NotContains(t, log, "no/such")
	for _, tool := range []string{"claude-code", "codex", "cursor", "cursor"} {
		h.ok("hooks", "remove", tool, h.at)
	}
	require.Equal(t, before, h.sh("", tree))
	require.NoDirExists(t, filepath.Join(h.at, ".codex"))

	h.fails(2, "TOOL", "hooks", "install", "emacs", h.at)
	h.fails(2, "ACTION", "hooks", "put", "git", h.at)
	h.fails(3, "no such file", "hooks", "install", "git", h.path("none"))
	h.fails(3, "not a git repository", "hooks", "install", "git", h.at)
	h.sh("", `echo '{' > .cursor/hooks.json; ln -s / out; ln -s out/none .codex`)
	h.fails(4, "not JSON", "hooks", "install", "cursor", h.at)
	h.fails(4, "conflict", "hooks", "install", "codex", h.at)
	require.Equal(t, "{\n", h.sh("", `cat .cursor/hooks.json`))
}

// TestHooksGit has git make turns, beside hooks of others: a shell script, a program that begins as one and a symbolic
// link.
func TestHooksGit(t *testing.T) {
	h := newHookTools(t)
	h.ok("up", "app", h.at)
	h.sh("", `git init -q .; git config user.name n; git config user.email e@x; echo hooks.* > .git/info/exclude; cd .git/hooks; rm -f *
		printf '#!/bin/bash\necho merge $0 $1 >> hooks.ran; exit 3' > post-merge
		cat > post-checkout <<-'EOF'
			#!/bin/sh
			'''exec' python3 "$0" "$@"
			' '''
			import sys
			open("hooks.ran", "a").write("checkout %s\n" % sys.argv[3])
		EOF
		printf '#!/bin/sh\necho rewrite $1 $(wc -l) >> hooks.ran\n' > ../rewrite; ln -s ../rewrite post-rewrite; chmod +x ../rewrite post-*`)
	const tree = `cd .git/hooks; ls -l --time-style=+ | tail -n +2; cat *`
	before := h.sh("", tree)
	h.sh("", `ln .git/hooks/post-checkout .git/hooks/post-checkout.before-snapfs`) // as an interrupted install leaves it
	require.Len(t, strings.Fields(h.ok("hooks", "install", "git", h.at)), 4)
	with := h.sh("", tree)
	require.Empty(t, h.ok("hooks", "install", "git", h.at))
	require.Equal(t, with, h.sh("", tree))
	number := func() int { return strings.Count(h.turns(), "git") }
	for _, step := range []struct{ script, ran string }{
		{`git commit --allow-empty -qm one`, ""},
		{`git checkout -q -b other`, "checkout 1\n"},
		{`git commit --allow-empty -qm two; git checkout -q -; git merge -q other`, "checkout 1\nmerge .git/hooks/post-merge.before-snapfs 0\n"},
		{`git commit --allow-empty -q --amend -m three`, "rewrite amend 1\n"},
	} {
		n := number()
		require.Empty(t, h.sh("", `rm -f hooks.ran; date +%N > step; `+step.script))
		require.Greater(t, number(), n, step.script)
		require.Equal(t, step.ran, h.sh("", `cat hooks.ran 2> /dev/null || true`))
	}
	// Without snapfs, git goes on as it did.
	h.sh("", `export PATH=/usr/bin:/bin; ! command -v snapfs > /dev/null; git commit --allow-empty -qm four`)
	require.Len(t, strings.Fields(h.ok("hooks", "remove", "git", h.at)), 4)
	require.Empty(t, h.ok("hooks", "remove", "git", h.at))
	require.Equal(t, before, h.sh("", tree))

	// One that git does not run stays.
	h.sh("", `cd .git/hooks; rm post-*; echo off > post-commit; ln -s none post-merge`)
	before = h.sh("", tree+" || true")
	r := h.run("hooks", "install", "git", h.at)
	require.Zero(t, r.code)
	require.Len(t, strings.Fields(r.out), 2)
	require.Equal(t, 2, strings.Count(r.err, "not executable"), r.err)
	h.ok("hooks", "remove", "git", h.at)
	require.Equal(t, before, h.sh("", tree+" || true"))

	for _, action := range []string{"install", "remove"} {
		h.sh("", `git config core.hooksPath "$1"`, h.path("shared/deep"))
		h.fails(4, "core.hooksPath", "hooks", action, "git", h.at)
		require.NoDirExists(t, h.path("shared"))
	}
	h.sh("", `git config core.hooksPath .githooks; mkdir -p 'sub/[a] *'; git status --short > ../status`)
	h.ok("hooks", "install", "codex", filepath.Join(h.at, "sub/[a] *"))
	h.sh("", `git status --short | diff - ../status`)
	h.ok("hooks", "remove", "git", filepath.Join(h.at, "sub"))
	require.NoDirExists(t, filepath.Join(h.at, ".githooks"))
	h.ok("hooks", "install", "git", filepath.Join(h.at, "sub"))
	h.sh("", `test -x .githooks/post-commit; git config core.hooksPath .husky/_`)
	h.fails(4, "husky", "hooks", "install", "git", h.at)
}

// TestHooksWorktrees has snapfs make and remove worktrees of Claude Code, of a directory and of a workspace.
func TestHooksWorktrees(t *testing.T) {
	h := newHookTools(t)
	h.makeDir("app")
	h.sh("", `git init -q .; git config user.name n; git config user.email e@x; echo one > f; git add f; git commit -qm one; echo secret > .env`)
	const state = `git status --short --branch; git branch -v; md5sum .git/HEAD .git/index .git/info/exclude`
	before := h.sh("", state)
	require.Len(t, strings.Fields(h.ok("hooks", "install", "claude-code", h.at)), 2)
	require.NotContains(t, h.sh("", state), ".claude", "git is not to commit it")
	require.Len(t, strings.Fields(h.ok("hooks", "remove", "claude-code", h.at)), 2)
	require.Equal(t, before, h.sh("", state))
	h.ok("hooks", "install", "claude-code", h.at)
	require.NotContains(t, h.commands(".claude/settings.local.json"), "WorktreeCreate", "they are asked for")
	h.fails(2, "--worktrees", "hooks", "install", "codex", h.at, "--worktrees")
	h.ok("hooks", "install", "claude-code", h.at, "--worktrees")
	commands := h.commands(".claude/settings.local.json")
	create := func(name string) string {
		return strings.TrimSuffix(h.sh(`{"session_id": "s", "cwd": "`+h.at+`", "hook_event_name": "WorktreeCreate", "name": "`+name+`"}`, `sh -c "$1"`, commands["WorktreeCreate"]), "\n")
	}
	remove := func(path string) {
		t.Helper()
		require.Empty(t, h.sh(`{"cwd": "`+h.at+`", "hook_event_name": "WorktreeRemove", "worktree_path": "`+path+`"}`, `sh -c "$1"`, commands["WorktreeRemove"]))
	}
	one, two := create("Bright/Fox"), create("../../two")
	require.NotEqual(t, one, two)
	require.Equal(t, h.dir+"-worktrees", filepath.Dir(one))
	require.Equal(t, "secret\n", shell(t, soon, one, `cat .env; echo new > f; git commit -qam two`))
	require.Equal(t, one, create("Bright/Fox"), "it is used again")
	h.sh(`{"cwd": "`+one+`", "hook_event_name": "Stop"}`, `sh -c "$1"`, commands["Stop"])
	require.Contains(t, h.ok("turns", filepath.Base(one), "--no-stat"), "claude-code Stop")
	shell(t, soon, one, `git checkout -q --detach; git commit --allow-empty -qm three; git branch same HEAD~2; echo later > f`)
	before = h.sh("", state)
	h.sh("", `mv .git away`)
	remove(one)
	require.DirExists(t, one, "its commits would be lost")
	require.Contains(t, h.read("home/hooks.log"), "commits would be lost")
	h.sh("", `mv away .git`)
	remove(one)
	require.NoDirExists(t, one)
	require.Equal(t, before, h.sh("", state))
	refs := "refs/snapfs/" + filepath.Base(one)
	require.Equal(t, refs+"/HEAD three\n"+refs+"/heads/"+strings.TrimSpace(h.sh("", `git branch --show-current`))+" two\n",
		h.sh("", `git for-each-ref --format='%(refname) %(subject)' refs/snapfs`))
	remove(two + "/deeper")
	require.Empty(t, decode[sandbox.WorkspacePage](h.home, "list").Workspaces)
	require.Equal(t, "one\n", h.sh("", `cat f`))
	kept := decode[sandbox.SnapshotPage](h.home, "snapshots", "--workspace", filepath.Base(one)).Snapshots
	require.Equal(t, "later", h.ok("cat", kept[len(kept)-1].ID+":/f"))

	// Nothing else is removed, and what snapfs cannot make, git does.
	h.ok("create", "other")
	inside := filepath.Join(h.at, "mounted")
	h.ok("mount", "other", h.makeDir("app/mounted"))
	for _, path := range []string{inside, h.at, "/", "", "relative", h.dir + "-worktrees", h.dir + "-worktrees/other", h.dir + "-worktrees/../app"} {
		remove(path)
	}
	require.Equal(t, sandbox.Mounted, h.workspace("other").State)
	three := create("three")
	require.Equal(t, filepath.Join(h.at, ".claude/worktrees/three"), three)
	require.Equal(t, "worktree-three\n", shell(t, soon, three, `git branch --show-current`))
	require.Contains(t, h.read("home/hooks.log"), "is mounted inside")
	remove(three)
	require.NoDirExists(t, three)
	h.ok("down", "other")
	h.sh("", `git worktree add -q ../linked -b feature`)
	project := h.at
	h.at = h.path("linked")
	linked := create("fix")
	require.Equal(t, filepath.Join(h.at, ".claude/worktrees/fix"), linked)
	shell(t, soon, linked, `git rm -q f; git commit -qm none`)
	require.Equal(t, "## feature\n?? .claude/\n", h.sh("", `git status --short --branch`))
	remove(linked)
	h.at = project

	// Without snapfs, it is git in the shell.
	h.env = append(h.env, "PATH=/usr/bin:/bin")
	require.Equal(t, filepath.Join(h.at, ".claude/worktrees/Bright-Fox"), create("Bright/Fox"))
	require.Equal(t, filepath.Join(h.at, ".claude/worktrees/Bright-Fox"), create("Bright/Fox"))
	h.env = h.env[:len(h.env)-1]
	h.sh("", `git worktree remove .claude/worktrees/Bright-Fox`)

	// That of a workspace is a fork of it.
	h.ok("up", "app", h.path("ws"), "--from", h.at)
	h.at = h.path("ws")
	h.sh("", `echo forked > f`)
	fork := create("fork")
	require.Equal(t, "forked\n", shell(t, soon, fork, `cat f`))
	remove(fork)
	require.Empty(t, names(t, h.dir+"-worktrees"))
	require.Len(t, decode[sandbox.WorkspacePage](h.home, "list").Workspaces, 2)
	require.Empty(t, decode[sandbox.CheckResult](h.home, "check").Problems)
}
