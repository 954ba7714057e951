package e2e

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
)

// killTimeEnv is for how long each program of TestKilled works, as "1m".
const killTimeEnv = "SNAPFS_KILL_TIME"

// A killed program works in a workspace until $STOP is there, while the daemon is killed over and over. It must not see an
// error, and what it has made is what it would have made without kills: check says so afterwards. prepare works outside of the
// workspace, in $OUT, before it. $SEED is the test's, $TOOLS the directory of its own programs.
type killedProgram struct {
	name                 string
	prepare, work, check string
	options              []string // of the mount
	long                 bool     // not in a short run
}

// until repeats a script until the test wants it to end, at least once.
func until(script string) string {
	return `n=0; while true; do n=$((n+1))
		` + script + `
		[ -e "$STOP" ] && break; done`
}

var killedPrograms = []killedProgram{
	{
		name: "build", long: true, prepare: `mkdir src; cp -r "$(go env GOROOT)"/src/{strconv,sort,bufio} src/; cd src; rm -f */*_test.go; rm -rf strconv/testdata
		printf 'module m\ngo 1.21\n' > go.mod; mkdir cmd
		printf 'package main\nimport ("encoding/json"; "net/http"; "text/template"; "os")\nfunc main() { json.NewEncoder(os.Stdout).Encode(http.StatusText(404)); template.New("x") }\n' > cmd/main.go
		GOFLAGS=-mod=mod GOCACHE=$OUT/cache go build -trimpath -o ../want ./cmd`,
		work: `mkdir src tmp; cp -r "$OUT"/src .; cd src; export GOFLAGS=-mod=mod GOTMPDIR=$PWD/../tmp GOCACHE=$PWD/../cache
		` + until(`go build -trimpath -o ../got$n ./cmd; cmp ../got$n "$OUT/want"; rm -rf ../got$n; [ $((n % 2)) = 0 ] || touch -d @$n cmd/main.go`),
		check: `test -z "$(ls tmp)"; cd src; diff -r . "$OUT/src"`,
	},
	{
		name: "git", long: true, prepare: git + `mkdir src; cd src; cp -r "$(go env GOROOT)"/src/{net,os} .; git init -q .; git add .; git commit -qm one
		for i in 1 2 3 4 5; do echo "// $i" >> net/ip.go; git commit -qam "change $i"; done`,
		work: git + until(`git clone -q --no-local "$OUT/src" clone$n; cd clone$n; echo "$n" >> os/file.go; git commit -qam more; git mv net web; git commit -qm moved
			git gc -q --prune=now; git fsck --full --strict --no-progress --no-dangling; git status --porcelain | wc -l | grep -qx 0; cd ..; rm -rf clone$((n-1))`),
		check: git + `cd clone*; git fsck --full --strict --no-progress --no-dangling; git log --oneline | wc -l | grep -qx 8; test "$(git rev-parse HEAD~2)" = "$(git -C "$OUT/src" rev-parse HEAD)"; git diff --quiet`,
	},
	{name: "sqlite wal", long: true, work: sqliteWork("wal"), check: sqliteAfter},
	{name: "sqlite journal", long: true, work: sqliteWork("delete"), check: sqliteAfter},
	{name: "io", work: `python3 "$TOOLS/io.py" "$SEED" "$STOP"`},
	{name: "io writeback", long: true, work: `python3 "$TOOLS/io.py" "$SEED" "$STOP"`, options: []string{"-o", "writeback"}},
	{name: "names", work: `python3 "$TOOLS/names.py" "$SEED" "$STOP"`},
	{name: "names writeback", long: true, work: `python3 "$TOOLS/names.py" "$SEED" "$STOP"`, options: []string{"-o", "writeback"}},
	{name: "sqlite writeback", long: true, work: sqliteWork("wal"), check: sqliteAfter, options: []string{"-o", "writeback"}},
	{
		name: "module", long: true, prepare: `cd "$TOOLS/../../../.."; cp -r --parents go.mod go.sum LICENSE $(git ls-files | grep '\.go$' | xargs -n1 dirname | cut -d/ -f1 | sort -u | grep -vE '^(bench|\.)') "$OUT" 2>/dev/null
			rm -rf "$OUT/internal/e2e"; test -d "$OUT/layers"`,
		work: `mkdir tmp; cp -r "$OUT" src; cd src; export GOFLAGS=-mod=mod GOTMPDIR=$PWD/../tmp GOCACHE=$PWD/../cache CGO_ENABLED=0
			` + until(`go build -trimpath ./...; go build -trimpath -o ../got ./cmd/snapfs-client; sha256sum < ../got >> ../sums; for f in layers/*.go; do echo "// $n" >> "$f"; done`),
		check: `test -z "$(ls tmp)"; test "$(sort -u sums | wc -l)" = 1; cd src; for f in layers/*.go; do cmp -n "$(stat -c %s "$OUT/$f")" "$f" "$OUT/$f"; done`,
	},
	{
		name: "postgres", long: true,
		work: postgres + `chmod 755 "$HOME" "$HOME/.."; chown postgres .; install -d -o postgres "$PGHOST"; as initdb -A trust -D "$WS/data" > /dev/null
			ctl start; trap 'ctl stop -m immediate' EXIT; as pgbench -q -i -s 1 2>/dev/null
			` + until(`as pgbench -n -c 4 -j 2 -T 4 > "$PGHOST/bench" 2>&1; grep -q "number of failed transactions: 0 " "$PGHOST/bench"
			grep -o 'actually processed: [0-9]*' "$PGHOST/bench" | grep -o '[0-9]*' >> "$ACK"`) + `
			` + postgresSums + `
			as vacuumdb -q --all --analyze; as pg_amcheck --all --heapallindexed --install-missing; ctl stop -m fast; trap - EXIT
			! grep -E 'PANIC|FATAL|corrupt|could not' "$PGHOST/log"`,
		check: postgres + `ctl start; trap 'ctl stop -m immediate' EXIT; ` + postgresSums + `as pg_amcheck --all; ctl stop -m fast; trap - EXIT`,
	},
	{
		name: "container", long: true, prepare: `mkdir -p root/{proc,sys,dev,tmp,work,usr,etc,var,run}; for d in bin lib lib64 sbin; do ln -s usr/$d root/$d; done
		mkdir podman; echo 'n=0; while [ ! -e /out/stop.container ]; do n=$((n+1)); mkdir d$n; seq $n > d$n/a; ln d$n/a d$n/b; mv d$n/b d$n/c; exec 3>> d$n/a; rm d$n/a; echo more >&3
			test "$(wc -l < /dev/fd/3)" = $((n+1)); exec 3>&-; test "$(wc -l < d$n/c)" = $((n+1)); test ! -e d$n/a; if [ $n -gt 20 ]; then rm -r d$((n-20)); fi; done; echo $n > count' > root/work.sh`,
		work: `ws=$PWD; (cd /; while [ ! -e "$STOP" ]; do sleep 0.1; done; touch "$OUT/stop.container") & unshare --mount --propagation slave bash -euc 'umount -R /sys/fs/cgroup 2>/dev/null || true
			mount -t cgroup2 none /sys/fs/cgroup; mount -t tmpfs none /run
			exec podman --root "$OUT/podman" --runroot /run/podman --runtime crun --cgroup-manager cgroupfs --events-backend none run --rm --network none --cgroups=disabled \
				--log-driver none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --security-opt seccomp=unconfined -v /usr:/usr:ro -v "$1:/work" -v "$OUT:/out" -w /work \
				--rootfs "$OUT/root" bash -eu /work.sh' script "$ws"`,
		check: `test "$(ls -d d* | wc -l)" -gt 0; n=$(cat count); test "$(wc -l < d$n/c)" = $((n+1))`,
	},
	{
		name: "npm", long: true, prepare: `for i in 1 2 3 4 5 6 7 8; do mkdir -p lib$i; printf '{"name":"lib%s","version":"1.0.%s","bin":"run.js"}' $i $i > lib$i/package.json
			echo "console.log($i)" > lib$i/run.js; for j in $(seq 40); do echo "$i $j" > lib$i/file$j; done; (cd lib$i && npm pack --silent >/dev/null); done
		mkdir src; cd src; { printf '{"name":"app","version":"1.0.0","dependencies":{'; for i in 1 2 3 4 5 6 7 8; do printf '%s"lib%s":"file:%s/lib%s/lib%s-1.0.%s.tgz"' "$([ $i = 1 ] || echo ,)" $i "$OUT" $i $i $i; done; printf '}}'; } > package.json
		npm install --silent --no-audit --no-fund --cache "$OUT/cache"`,
		work: `cp "$OUT"/src/package*.json .; ` + until(`npm ci --silent --no-audit --no-fund --cache "$PWD/.cache"; diff -r node_modules "$OUT/src/node_modules" -x .package-lock.json`),
	},
	{
		name: "tar", prepare: `mkdir -p src/a/b src/c; for i in $(seq 40); do head -c $((i*3000)) /dev/urandom > src/a/$i; ln -s ../a/$i src/c/$i; ln src/a/$i src/a/b/$i; done`,
		work:  until(`mkdir new; tar -C "$OUT/src" -cf - . | tar -C new -xf -; mv new copy; diff -r --no-dereference copy "$OUT/src"; test copy/a/1 -ef copy/a/b/1; rm -rf copy`),
		check: `test -z "$(ls)"`,
	},
}

// postgres has functions for the server whose data are in the workspace.
const postgres = `WS=$PWD; cd /; export PGHOST="$OUT/sockets" PGUSER=postgres PGDATABASE=postgres PATH="$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH"
	as() { setpriv --reuid=postgres --regid=postgres --init-groups env TMPDIR="$PGHOST" "$@"; }
	ctl() { as pg_ctl -s -w -t 100 -D "$WS/data" -o "-c listen_addresses= -c unix_socket_directories=$PGHOST -c shared_buffers=16MB" -l "$PGHOST/log" "$@" </dev/null >/dev/null; }
	cd "$WS"; `

// postgresSums checks that all transactions that were acknowledged are there, once, and all of each.
const postgresSums = `want=$(awk '{ n += $1 } END { print n }' "$ACK"); as psql -AtF ' ' -c 'select (select sum(abalance) from pgbench_accounts), (select sum(bbalance) from pgbench_branches), (select sum(tbalance) from pgbench_tellers), (select sum(delta) from pgbench_history), (select count(*) from pgbench_history)' |
	tee "$OUT/sums" | awk -v want=$want '$1 != $2 || $2 != $3 || $3 != $4 || $5 != want { print $0, want; exit 1 }'; `

// sqliteAfter is what a database has that its writer has left: each acknowledged row.
const sqliteAfter = `sqlite3 db 'pragma integrity_check' | grep -qx ok; n=$(cat "$ACK"); test $n -gt 0
	test "$(sqlite3 db 'select max(k) || count(*) from a')" = $n$n; test "$(sqlite3 db 'select count(*) from a left join b using (k) where size is not length(v)')" = 0`

// TestKilled kills the daemon while programs work in its workspaces, about every second: no program sees an
// error, nothing is lost, and none has to wait for long.
func TestKilled(t *testing.T) {
	seed, most, all := testseed.Of(t), killTime(t), slices.Concat(killedPrograms, moreKilledPrograms)
	for _, p := range all {
		if !p.long || everyProgram() {
			t.Run(p.name, func(t *testing.T) { p.run(t, seed, most, (*home).killDaemon) })
		}
	}
}

// TestReplaced is TestKilled with daemons that are replaced by a program in their process and by other processes in turn.
func TestReplaced(t *testing.T) {
	seed, most := testseed.Of(t), killTime(t)
	for _, p := range killedPrograms {
		if p.long && !everyProgram() {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			n := 0
			p.run(t, seed, most, func(h *home) bool {
				if n++; n%2 == 0 {
					return h.run("upgrade", "--force").code == 0
				}
				return h.replaced()
			})
		})
	}
}

// killTime is for how long each program works.
func killTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(killTimeEnv)
	switch {
	case text != "":
		most, err := time.ParseDuration(text)
		require.NoError(t, err)
		return most
	case long:
		return time.Minute
	}
	return 5 * time.Second
}

// everyProgram is whether the programs work that a short run leaves out.
func everyProgram() bool { return long || os.Getenv(killTimeEnv) != "" }

// replaced has another process take the place of the daemon, and reports whether one did.
func (h *home) replaced() bool {
	before := h.daemonPID()
	next := h.replace()
	for begin := time.Now(); before != 0 && time.Since(begin) < soon; time.Sleep(5 * time.Millisecond) {
		select {
		case <-next.ended:
			return false
		default:
		}
		if h.daemonPID() == next.pid() {
			return true
		}
	}
	return false
}

// run has the program work while the daemon is ended over and over.
func (p killedProgram) run(t *testing.T, seed uint64, most time.Duration, end func(*home) bool) {
	h := newHome(t)
	out, stop, asked := h.makeDir("out"), h.path("stop"), h.path("asked")
	tools, err := filepath.Abs("testdata/killed")
	require.NoError(t, err)
	env := `export HOME="$1" OUT="$1/out" STOP="$2" ACK="$1/ack" TOOLS="$3" SEED="$4"
		`
	step := func(what, dir, script string, limit time.Duration) string {
		t.Helper()
		if script == "" {
			return ""
		}
		r := process(t, limit, dir, h.env, "bash", "-c", "set -euo pipefail\n"+env+script, what, h.tmp, stop, tools,
			strconv.FormatUint(seed, 10))
		if r.code != 0 {
			t.Errorf("%s ended with %d: %s%s", what, r.code, tail(r.out), tail(r.err))
		}
		return strings.TrimSpace(r.out)
	}
	step("prepare", out, p.prepare, p.patience())
	h.ok(append([]string{"up", "ws", h.path("ws"), "--transport", "dev"}, p.options...)...)
	killer := startKiller(h, seed, meanKill, end)
	var stalls string
	asking := make(chan struct{})
	go func() {
		defer close(asking)
		stalls = step("stalls", h.tmp, `python3 "$TOOLS/stalls.py" ws "`+asked+`"`, most+p.patience())
	}()
	time.AfterFunc(most, func() {
		killer.stop() // what it has begun may take as long as all before where others want the processors, too
		_ = os.WriteFile(stop, nil, 0o600)
	})
	did := step("work", h.path("ws"), p.work, most+p.patience())
	kills := killer.end()
	require.NoError(t, os.WriteFile(asked, nil, 0o600))
	<-asking
	step("check", h.path("ws"), p.check, p.patience())
	waits := numbers(t, stalls)
	t.Logf("%d kills; milliseconds that answers took: %v; %s", kills, waits, tail(did))
	require.Positive(t, kills)
	if len(waits) > 0 && waits[len(waits)-1] > 10_000 { // a busy machine is no fault
		t.Errorf("an answer took %d ms", waits[len(waits)-1])
	}
	// What is there is also what the next daemon finds.
	tree := walk(t, h.path("ws"))
	h.ok("umount", "ws")
	h.ok("mount", "ws", h.path("ws"))
	// Over --writeback the kernel writes late, with or without kills, and the host's time is that of the write.
	late := slices.Contains(p.options, "writeback")
	same(t, "mounted again", tree, walk(t, h.path("ws")), treewalk.Options{IgnoreMtime: late})
}

// patience bounds how long a step takes beside the time for which it is to work: a program ends when it has done what it
// is at, once at least, such as a build of everything.
func (p killedProgram) patience() time.Duration {
	if p.long {
		return time.Hour
	}
	return soon
}

// numbers are those of a text, sorted.
func numbers(t *testing.T, text string) (all []int) {
	t.Helper()
	for _, word := range strings.Fields(text) {
		n, err := strconv.Atoi(word)
		require.NoError(t, err)
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// killer ends the daemon of a home over and over.
type killer struct {
	h     *home
	stop  context.CancelFunc
	ended chan struct{}
	kills int
}

// keepsNothing has mounts end with the daemon, of a home that has none yet.
func (h *home) keepsNothing() { h.env = append(h.env, "SNAPFS_KEEP_MOUNTS=0") }

// meanKill is how long a daemon lives, about: at most twice as long.
const meanKill = time.Second

// startKiller ends the daemon at random moments, about one mean after another and at most two, until the end of the test
// at the latest.
func startKiller(h *home, seed uint64, mean time.Duration, end func(*home) bool) *killer {
	ctx, stop := context.WithCancel(context.Background())
	k := &killer{h: h, stop: stop, ended: make(chan struct{})}
	rng := rand.New(rand.NewPCG(seed, 17))
	h.t.Cleanup(func() { k.end() })
	go func() {
		defer close(k.ended)
		for {
			select {
			case <-time.After(min(time.Duration(rng.ExpFloat64()*float64(mean)), 2*mean)):
			case <-ctx.Done():
				return
			}
			if end(h) {
				k.kills++
			}
		}
	}()
	return k
}

// killDaemon reports whether there was a daemon to kill.
func (h *home) killDaemon() bool {
	pid := h.daemonPID()
	return pid > 0 && unix.Kill(pid, unix.SIGKILL) == nil
}

// end tells how often the daemon was ended.
func (k *killer) end() int {
	k.stop()
	<-k.ended
	return k.kills
}

// daemonPID is the process that holds the home, 0 if that is not known. Nothing is asked.
func (h *home) daemonPID() int {
	text, err := os.ReadFile(filepath.Join(h.dir, "lock"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	if err != nil || !strings.Contains(commandLine(pid), " serve ") {
		return 0
	}
	return pid
}
