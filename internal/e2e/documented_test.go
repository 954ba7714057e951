package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// documentedWorld makes what the documents suppose: a source tree, a workspace app that is mounted, its snapshots. What
// one line has changed of them is made again before the next, or left. It runs in a mount namespace of its own.
const documentedWorld = `
cd "$(dirname "$0")" && results=$PWD || exit 1
for dir in /mnt /srv /var/log; do mount -t tmpfs none $dir || exit 1; done
mkdir /mnt/bin /mnt/root && ln -s "$1" "$1-engine" /mnt/bin/ || exit 1
export HOME=/mnt/root PATH=/mnt/bin:$PATH
printf '#!/bin/sh\nmkdir -p node_modules; echo "$@" > node_modules/installed\n' | tee /mnt/bin/npm > /mnt/bin/agent
chmod +x /mnt/bin/*
mkdir -p ~/src/app && git init -q ~/src/app && cd ~/src || exit 1
printf 'test:\n\ttrue\n' | tee Makefile > app/Makefile
mksquashfs app base.sqsh -quiet -no-progress > /dev/null
world() {
	cd ~/src && rm -rf app.sqsh before || return
	echo > /var/log/snapfs.log
	for at in /mnt/try-1 /mnt/try-2 /mnt/back /mnt/before /mnt/built; do ! mountpoint -q $at || umount $at || return; done
	snapfs show app > /dev/null 2>&1 || snapfs delete app:base app:before-upgrade app:built
	snapfs mount app /mnt/app --engine fuse || { snapfs umount app; snapfs up app /mnt/app --from ~/src/app --engine fuse; } || return
	for s in base before-upgrade built; do
		snapfs show "$s" > /dev/null 2>&1 && continue
		date +%N > "/mnt/app/$s" && snapfs snapshot app --name "$s" || return
	done
	export built=$(snapfs show built --json | jq -r .snapshot.id) base=$(snapfs show base --json | jq -r .snapshot.id)
}
served() { # served HOME: ends its daemon once it serves
	for _ in $(seq 900); do snapfs --home "$1" status && break; sleep 0.1; done
	snapfs --home "$1" stop
}
run() { # run N NEED LINE: a line that is to run for ever is interrupted, or its daemon ended
	{ world && eval "$2"; } > "$results/world.$1" 2>&1
	case $3 in *--follow*) limit=1 ;; *) limit=90 ;; esac
	case $3 in *"snapfs serve --home "*) served /srv/ws > "$results/served.$1" 2>&1 & ;; esac
	timeout --preserve-status --signal INT $limit bash -c "$3" > "$results/out.$1" 2>&1 < /dev/null
	echo "$?" > "$results/code.$1"
	wait
}
`

// documentedNeeds are scripts that run after world and before a line, by how lines begin.
var documentedNeeds = []struct{ line, script string }{
	{"snapfs check --read-data --repair", `snapfs stop`},
	{"snapfs check --rebuild-index", `snapfs stop`},
	{"snapfs compare ", `for n in one two three; do snapfs show $n || snapfs branch app:base /mnt/$n --name $n; date +%N > /mnt/$n/x; done`},
	{"snapfs apply --undo app", `snapfs show one || snapfs branch app:base /mnt/one --name one; date +%N > /mnt/one/x && snapfs apply one --to app --theirs`},
	{"snapfs apply --undo ./app", `date +%N > /mnt/app/home && snapfs apply app --to ./app --theirs`},
	{"snapfs apply one ", `snapfs show one || snapfs branch app:base /mnt/one --name one; date +%N > /mnt/one/x`},
	{"snapfs apply one --to-git", `git config --global user.email a@b; git config --global user.name a; git -C ~/src/app update-ref -d refs/heads/one; snapfs show one || snapfs branch app:base /mnt/one --name one; date +%N > /mnt/one/x`},
	{"snapfs reads .", `cd /mnt/app`},
	{"snapfs reads two", `snapfs show two || snapfs create two`},
	{"snapfs apply two ", `snapfs destroy --force --now two; snapfs snapshot app --name base2; snapfs branch app:base2 /mnt/two --name two --track-reads; date +%N > /mnt/two/x`},
	{"snapfs branch app:start ", `snapfs destroy --force one; snapfs delete app:start; snapfs snapshot app --name start`},
	{"snapfs branch app:start /mnt/two ", `snapfs destroy --force --now two; snapfs show app:start || snapfs snapshot app --name start`},
	{"snapfs create app4 ", `rm -f app.tar && snapfs export app:base app.tar --format docker`},
	{"snapfs create app ", `snapfs umount app && snapfs destroy app`},
	{"snapfs diff built app-branch-1f3a", `export branch=$(snapfs branch built --quiet)`},
	{"snapfs diff .", `cd /mnt/app`},
	{"snapfs rollback . ", `cd /mnt/app`},
	{"snapfs snapshot . --name built", `cd /mnt/app && snapfs delete built`},
	{"snapfs export before-upgrade --to", `cd "$(mktemp -d)"`},
	{"snapfs mount app /mnt/app -", `snapfs umount app`},
	{"snapfs rename try-2 ", `snapfs show try-2 || snapfs create try-2`},
	{"snapfs resume app", `snapfs pause app`},
	{"snapfs serve ", `echo agents:x:4242: | cat /etc/group - > group && mount --bind group /etc/group`},
	{"snapfs snapshot app --name before-upgrade", `snapfs delete app:before-upgrade`},
	{"snapfs snapshot app --name built", `snapfs delete app:built`},
	{"snapfs snapshot app --name start", `snapfs delete app:start`},
	{"snapfs up app /mnt/app --from ~/src/app --engine", `snapfs umount app && snapfs quota app --size 0 --inodes 0`},
	{"snapfs umount /mnt/built", `snapfs mount --read-only app:built /mnt/built`},
	{"snapfs turn", `date +%N > /mnt/app/turn`},
	{"snapfs turns", `date +%N > /mnt/app/turn; snapfs turn app`},
	{"snapfs undo .", `cd /mnt/app && for i in 1 2 3; do date +%N > turn; snapfs turn .; done`},
	{"snapfs undo app", `date +%N > /mnt/app/turn; snapfs turn app`},
	{"snapfs redo .", `cd /mnt/app && for i in 1 2 3; do date +%N > turn; snapfs turn .; done; snapfs undo . 3`},
	{"snapfs redo app", `date +%N > /mnt/app/turn; snapfs turn app; snapfs undo app`},
	{"snapfs umount try-1 ", `snapfs create try-1 --from base && snapfs mount try-1 /mnt/try-1`},
}

// documentedIDs are what stands in documents for what no document can know.
var documentedIDs = strings.NewReplacer(
	"0199d5a4-7a1e-7c3b-8f00-2b1d5e6f7a8b", "$built",
	"0199d5a4", "$built", "0199d5b0", "$base", "restore 0199", "restore $built", "app-branch-1f3a", "$branch",
)

// documentedElsewhere are lines that only other tests can run: in containers, and with control groups.
var documentedElsewhere = regexp.MustCompile(`^(podman|docker|-v) | --cgroup | --container `)

// TestDocumentedLines runs the command lines of the README and of the verbs' help.
func TestDocumentedLines(t *testing.T) {
	h := newHome(t)
	lines := documentedLines(t, h)
	script := strings.Builder{}
	script.WriteString(documentedWorld)
	quoted := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	for i, line := range lines {
		need := ""
		for _, n := range documentedNeeds {
			if strings.HasPrefix(line, n.line) {
				need = n.script
			}
		}
		fmt.Fprintf(&script, "run %d %s %s\n", i, quoted(need), quoted(documentedIDs.Replace(line)))
	}
	h.write("script", script.String()+"snapfs stop\n")
	r := process(t, 8*time.Minute, h.tmp, h.env, "unshare", "--mount", "bash", h.path("script"), snapfs)
	require.Zero(t, r.code, "%s%s", tail(r.out), tail(r.err))
	for i, line := range lines {
		code := strings.TrimSpace(h.read(fmt.Sprintf("code.%d", i)))
		if interrupted := code == "130" && strings.Contains(line, "--follow"); code != "0" && !interrupted {
			t.Errorf("%s: ended with %s: %s\nbefore it: %s", line, code, tail(h.read(fmt.Sprintf("out.%d", i))),
				tail(h.read(fmt.Sprintf("world.%d", i))))
		}
	}
}

// documentedLines are those that call snapfs, without what only other tests run.
func documentedLines(t *testing.T, h *home) []string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	var all []string
	for i, part := range strings.Split(string(text), "\n```") {
		if i%2 == 1 {
			all = append(all, strings.Split(part, "\n")[1:]...)
		}
	}
	require.NotEmpty(t, all)
	for _, verb := range regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(h.ok("--help"), -1) {
		if _, examples, found := strings.Cut(h.ok(verb[1], "--help"), "\nExamples:\n"); found {
			examples, _, _ = strings.Cut(examples, "\n\n")
			all = append(all, strings.Split(examples, "\n")...)
		}
	}
	var lines []string
	for _, line := range all {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
		if regexp.MustCompile(`(^|&& |\| |<\()snapfs `).MatchString(line) && !documentedElsewhere.MatchString(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
