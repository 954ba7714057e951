package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"snapfs/sandbox"
	"snapfs/sandbox/client"
)

// A living program works in a workspace, step by step, until the file $STOP is there. Each step that is done it
// acknowledges outside of the workspace: its number is the content of $ACK. In a snapshot the tree is sound, whatever
// the program was doing, and has every step that was acknowledged before; check prints the number of the last one,
// which may be ahead of the acknowledgement by one.
type living struct {
	name        string
	work, check string // bash scripts; work calls more after each step
}

// more acknowledges a step and begins the next, until it is time to end.
const more = `n=0; more() { if [ $n -gt 0 ]; then echo $n > "$ACK.new"; mv "$ACK.new" "$ACK"; fi; n=$((n+1)); sleep 0.02; [ ! -e "$STOP" ]; }
`

var livings = []living{
	{"wal", sqliteWork("wal"), sqliteCheck},
	{"files", more + `put() { (cksum; cat "$1") < "$1" > .new; mv .new "$2"; }
		while more; do
			echo "$n $((n*n))" >> log
			f=f$((n%7)); { if [ -e $f ]; then tail -n +2 $f | tail -n 50; fi; echo "line $n"; } > .body; put .body $f
		done`, `
		for f in f?; do test "$(tail -n +2 $f | cksum)" = "$(head -n 1 $f)"; done
		last=$(cat f? | sed -n 's/^line //p' | sort -n | tail -n 1)
		awk -v last=$last '$1 != NR || $2 != NR*NR { exit 1 } END { exit NR != last && NR != last+1 }' log
		echo $last`},
	{"git", git + more + `git init -q .
		while more; do
			echo $n > file$((n%5)); mkdir -p dir$((n%3)); echo $n > dir$((n%3))/file; git add .; git commit -qm $n
			if [ $((n%10)) = 0 ]; then git repack -qad; fi
		done`, git + `git fsck --full --strict --no-progress --no-dangling >&2; n=$(git log -1 --format=%s)
		test "$(git rev-list --count HEAD)" = $n; test "$(git show HEAD:file$((n%5)))" = $n; echo $n`},
	{"tar", more + `mkdir -p src/a/b src/c; for i in 1 2 3 4 5 6; do head -c $((i*5000)) /dev/urandom > src/a/$i; ln -s ../a/$i src/c/$i; ln src/a/$i src/a/b/$i; done
		while more; do
			mkdir new; tar -C src -cf - . | tar -C new -xf -; mv new copy.$n; rm -rf copy.$((n-1))
		done`, `n=$(ls -d copy.* | sed 's/copy.//' | sort -n | tail -n 1); test "$(ls -d copy.* | wc -l)" -le 2; diff -r --no-dereference src copy.$n >&2
		test copy.$n/a/1 -ef copy.$n/a/b/1; echo $n`},
	{"journal", sqliteWork("delete"), sqliteCheck},
}

func sqliteWork(mode string) string {
	return `exec python3 -c '
import os, sqlite3, sys, time
db = sqlite3.connect("db", isolation_level=None, timeout=60)
db.execute("pragma journal_mode=` + mode + `")
db.execute("pragma synchronous=normal")
db.executescript("create table a(k integer primary key, v blob); create table b(k integer primary key, size integer); create index i on a(v)")
n = 0
while not os.path.exists(os.environ["STOP"]):
    n += 1
    db.execute("begin immediate")
    db.execute("insert into a values(?, randomblob(?))", (n, n * 37 % 3000))
    db.execute("insert into b values(?, ?)", (n, n * 37 % 3000))
    db.execute("commit")
    with open(os.environ["ACK"] + ".new", "w") as f: f.write(str(n))
    os.replace(os.environ["ACK"] + ".new", os.environ["ACK"])
    time.sleep(0.02)
'`
}

// sqliteCheck asks everything in one process: the last that closes a database locks it for the others.
const sqliteCheck = `found=$(sqlite3 db 'pragma integrity_check; select count(*) = max(k) from a; select max(k) from a where k = (select max(k) from b);
		select count(*) = 0 from a left join b using (k) where size is not length(v)')
	n=$(sed -n 3p <<< "$found"); test "$found" = "$(printf 'ok\n1\n%s\n1' $n)"; echo $n`

// taken is a snapshot with the acknowledgements before and after it.
type taken struct {
	id            string
	before, after int
}

// TestLiving snapshots workspaces over and over while real programs write in all of them: no program sees an error,
// every snapshot is sound and complete, and the daemon's memory is bounded. Whole, with SNAPFS_LONG=1: a hundred
// workspaces, each once a second for a minute, and every snapshot is looked at; else a few workspaces, each after a
// step of its program, and some snapshots.
func TestLiving(t *testing.T) {
	count, rounds, bound := 8, 5, 512<<10
	if long {
		count, rounds, bound = 100, 60, 1<<20
	}
	h := newHome(t)
	programs := make([]*program, count)
	for i := range programs {
		programs[i] = newProgram(h, i, livings[i%len(livings)])
	}
	t.Cleanup(func() { // before the home's
		for _, p := range programs {
			p.kill()
		}
	})
	for _, p := range programs {
		p.start()
	}
	api, err := client.Dial(t.Context(), h.dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = api.Close() })
	begin := time.Now()
	var all sync.WaitGroup
	for _, p := range programs {
		all.Go(func() { p.snapshots(api, rounds) })
	}
	all.Wait()
	t.Logf("%d snapshots of %d workspaces in %.1f s; ms each, median and p99: %.1f",
		count*rounds, count, time.Since(begin).Seconds(), times(programs))
	t.Logf("peak memory of the daemon: %d KiB", peak(t, h.pid()))
	h.write("stop", "")
	for _, p := range programs {
		p.end()
	}
	if t.Failed() {
		return
	}
	begin = time.Now()
	var checks errgroup.Group
	checks.SetLimit(6)
	for _, p := range programs {
		checks.Go(func() error {
			if err := p.check(t.Context(), api); err != nil {
				t.Error(err)
			}
			return nil
		})
	}
	_ = checks.Wait() // each tells its own
	h.ok("check", "--read-data")
	memory := peak(t, h.pid())
	t.Logf("checked in %.1f s; peak memory of the daemon: %d KiB", time.Since(begin).Seconds(), memory)
	require.Less(t, memory, bound, "KiB")
}

// program is a living one at work in a workspace of its own.
type program struct {
	living
	h         *home
	workspace string
	ack       string
	cmd       *exec.Cmd
	out       bytes.Buffer // of cmd, once it has ended
	took      []time.Duration
	taken     []taken
}

func newProgram(h *home, i int, l living) *program {
	p := &program{living: l, h: h, workspace: fmt.Sprintf("%s-%d", l.name, i)}
	p.ack = h.path(p.workspace + ".ack")
	return p
}

// start mounts the workspace and begins to work.
func (p *program) start() {
	p.h.t.Helper()
	p.h.ok("up", p.workspace, p.h.path(p.workspace))
	p.cmd = p.script(context.Background(), p.h.path(p.workspace), p.work)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	require.NoError(p.h.t, p.cmd.Start())
}

func (p *program) script(ctx context.Context, dir, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail\n"+text)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), p.h.env...), "ACK="+p.ack, "STOP="+p.h.path("stop"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd
}

// acked is the number of the last step that was acknowledged, 0 before the first.
func (p *program) acked() int {
	text, err := os.ReadFile(p.ack)
	if err != nil {
		return 0 // not yet
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		p.h.t.Errorf("%s: %v", p.ack, err)
	}
	return n
}

// after waits for the program to acknowledge more than n.
func (p *program) after(n int) bool {
	for end := time.Now().Add(2 * time.Minute); p.acked() <= n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.h.t.Errorf("%s does not go on after step %d", p.workspace, n)
			return false
		}
	}
	return true
}

// snapshots takes the snapshots of one workspace.
func (p *program) snapshots(api sandbox.API, rounds int) {
	if !p.after(0) {
		return
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for range rounds {
		if long {
			<-second.C
		} else if len(p.taken) > 0 && !p.after(p.taken[len(p.taken)-1].after) {
			return
		}
		s := taken{before: p.acked()}
		begin := time.Now()
		got, err := api.Snapshot(p.h.t.Context(), sandbox.SnapshotRequest{Workspace: p.workspace})
		if err != nil {
			p.h.t.Errorf("snapshot of %s: %v", p.workspace, err)
			return
		}
		p.took = append(p.took, time.Since(begin))
		s.id, s.after = got.ID, p.acked()
		p.taken = append(p.taken, s)
	}
}

// end waits until the program, which has been told to, ends without an error.
func (p *program) end() {
	kill := time.AfterFunc(2*time.Minute, func() { _ = p.cmd.Cancel() })
	defer kill.Stop()
	err := p.cmd.Wait()
	p.cmd = nil
	if err != nil || p.out.Len() > 0 {
		p.h.t.Errorf("%s ended: %v\n%s", p.workspace, err, tail(p.out.String()))
	}
}

// kill ends a program that a failed test has left.
func (p *program) kill() {
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Cancel()
		_ = p.cmd.Wait()
	}
}

// check looks at what was snapshotted, and at the workspace as its program left it.
func (p *program) check(ctx context.Context, api sandbox.API) error {
	final := p.acked()
	if err := p.look(ctx, p.h.path(p.workspace), taken{p.workspace, final, final}); err != nil {
		return err
	}
	for i, s := range p.taken {
		if !long && i%2 == 1 {
			continue
		}
		dir := filepath.Join(p.h.tmp, "of-"+p.workspace)
		w, err := api.Restore(ctx, sandbox.RestoreRequest{Snapshot: s.id, Mountpoint: dir, MakeMountpoint: true})
		if err != nil {
			return fmt.Errorf("restore %s of %s: %w", s.id, p.workspace, err)
		}
		if err := p.look(ctx, dir, s); err != nil {
			return err
		}
		// By force: other tests' mount namespaces may have a copy of the mount.
		if _, err := api.Unmount(ctx, sandbox.UnmountRequest{Workspace: w.ID, Force: true}); err != nil {
			return fmt.Errorf("unmount %s: %w", w.ID, err)
		}
		if _, err := api.Destroy(ctx, sandbox.DestroyRequest{Ref: w.ID, Now: true}); err != nil {
			return fmt.Errorf("destroy %s: %w", w.ID, err)
		}
	}
	return nil
}

// look checks the tree of a snapshot that is mounted at dir.
func (p *program) look(ctx context.Context, dir string, s taken) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var out, errOut bytes.Buffer
	cmd := p.script(ctx, dir, p.living.check)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	n, numErr := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil || numErr != nil {
		return fmt.Errorf("snapshot %s of %s is not sound: %w\n%s%s",
			s.id, p.workspace, err, tail(out.String()), tail(errOut.String()))
	}
	if n < s.before || n > s.after+1 {
		return fmt.Errorf("snapshot %s of %s has %d steps; %d were acknowledged before it, %d after it",
			s.id, p.workspace, n, s.before, s.after)
	}
	return nil
}

// times are the median and the 99th percentile of the time of a snapshot, in milliseconds.
func times(programs []*program) []float64 {
	var all []float64
	for _, p := range programs {
		for _, d := range p.took {
			all = append(all, d.Seconds()*1000)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return []float64{all[len(all)/2], all[len(all)*99/100]}
}

// peak is the most memory that a process has had so far, in KiB.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			n, err := strconv.Atoi(f[1])
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
