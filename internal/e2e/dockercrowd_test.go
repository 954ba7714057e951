package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"snapfs/sandbox"
	"snapfs/sandbox/api"
)

// manyContainers is how many run at a time.
const manyContainers = 50

// together runs a command of the engine for each number below manyContainers, all at the same time, and gives how long that
// took. {} is the number.
func (d *docker) together(line ...string) time.Duration {
	d.h.t.Helper()
	begin := time.Now()
	r := process(d.h.t, soon, d.h.tmp, d.clientEnv(), append([]string{"bash", "-euc", `n=$1; shift
		for ((i = 0; i < n; i++)); do docker "${@//\{\}/$i}" >/dev/null & pids[i]=$!; done
		for pid in "${pids[@]}"; do wait "$pid"; done`, "script", itoa(manyContainers)}, line...)...)
	require.Zero(d.h.t, r.code, "docker %q: %s", line, tail(r.err))
	return time.Since(begin)
}

// TestDockerCrowd has many containers on branches of one snapshot, all made and started at once. Each reads the whole tree,
// and writes as root and as another user; none sees what another one does.
func TestDockerCrowd(t *testing.T) {
	h := newHome(t)
	d := newDocker(h)
	driver := d.serveVolumes()
	d.box()
	shell(t, soon, h.makeDir("src"), `mkdir d{0..9}; for i in {1..200}; do seq $((i * 50)) >d$((i % 10))/f$i; done
		mkdir -m 1777 open; echo base >changed; echo base >gone`)
	h.ok("destroy", "app")
	h.ok("create", "app", "--from", h.path("src"))
	h.ok("snapshot", "app", "--name", "built")
	const sums = `find . -type f | sort | xargs sha256sum | sha256sum`
	want := shell(t, soon, h.path("src"), sums)

	// Each waits at the pipe until all have written, and then lists what it sees.
	const work = `cd /workspace
		` + sums + ` >/tmp/sum
		echo $0 >>changed; rm gone; echo root >root-$0
		su somebody -c "echo somebody >open/mine-$0; ! echo no 2>/dev/null >>changed"
		mkfifo go; read word <go; rm go
		{ cat /tmp/sum changed open/mine-$0 root-$0; echo [a-c]* [e-z]* open/*; echo $word; } >/tmp/seen
		mv /tmp/seen seen
		exec sleep 100000`
	if os.Getenv("SNAPFS_LONG") != "" {
		d.compareCrowds(driver)
	}
	made := d.together("volume", "create", "-d", driver, "-o", "from=app:built", "-o", "inodes=10k", "ws{}")
	started := d.together(d.container("run", "-d", "--name", "c{}", "-v", "ws{}:/workspace", "box", "sh", "-euc", work, "{}")...)
	require.Len(t, strings.Fields(d.ok("ps", "-q")), manyContainers, "they run")
	shell(t, soon, h.path("home/mnt"), `for w in ws*; do until [ -p $w/go ]; do sleep 0.05; done; done
		for w in ws*; do echo $w >$w/go; done
		for w in ws*; do until [ -e $w/seen ]; do sleep 0.05; done; done`)
	require.Len(t, strings.Fields(d.ok("ps", "-q")), manyContainers, "they still run")
	for i := range manyContainers {
		ws := fmt.Sprint("ws", i)
		require.Equal(t, fmt.Sprintf("%sbase\n%d\nsomebody\nroot\nchanged open root-%d open/mine-%d\n%s\n", want, i, i, i, ws),
			h.read("home/mnt/"+ws+"/seen"))
		require.Equal(t, fmt.Sprintf("M changed\nD gone\nA open/mine-%d\nA root-%d\nA seen", i, i), h.ok("diff", ws))
	}
	require.Equal(t, strings.Repeat("1000 1000\n", manyContainers), shell(t, soon, h.path("home/mnt"), `stat -c '%u %g' ws*/open/mine-*`))
	t.Logf("made in %v, started in %v; the daemon: %s", made, started, memoryOf(h.pid()))

	var containers, volumes []string
	for i := range manyContainers {
		containers, volumes = append(containers, fmt.Sprint("c", i)), append(volumes, fmt.Sprint("ws", i))
	}
	d.ok(append([]string{"rm", "-f"}, containers...)...)
	for _, w := range decode[sandbox.WorkspacePage](h, "list").Workspaces {
		require.Equal(t, api.Unmounted, w.State, w.ID)
	}
	d.ok(append([]string{"volume", "rm"}, volumes...)...)
	require.Empty(t, d.volumes())
	require.Equal(t, []string{"app"}, workspaceNames(h))
	left, err := os.ReadDir(filepath.Join(h.dir, "mnt"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// compareCrowds tells how long it takes to make and start the containers, and until they have ended, on volumes of Docker's own
// and on branches, in turn.
func (d *docker) compareCrowds(driver string) {
	d.h.t.Helper()
	ratios := []float64{}
	for round := range 8 {
		started := map[string]float64{}
		kinds := [][]string{{"-d", "local"}, {"-d", driver, "-o", "from=app:built"}}
		if round%2 != 0 {
			slices.Reverse(kinds)
		}
		for _, options := range kinds {
			made := d.together(append(append([]string{"volume", "create"}, options...), "w{}")...)
			before := processorTime(d.h.pid())
			run := d.together(append(d.container("run", "-d", "--name", "c{}", "-v", "w{}:/workspace:nocopy"), "box", "sleep", "100000")...)
			used := processorTime(d.h.pid()) - before
			memory := memoryOf(d.h.pid())
			ended := d.together("rm", "-f", "c{}")
			removed := d.together("volume", "rm", "w{}")
			started[options[1]] = run.Seconds()
			d.h.t.Logf("%s: made %.2f s, started %.2f s, ended %.2f s, removed %.2f s; the daemon: %v to start, %s", options[1],
				made.Seconds(), run.Seconds(), ended.Seconds(), removed.Seconds(), used, memory)
		}
		ratios = append(ratios, started[driver]/started["local"])
	}
	slices.Sort(ratios)
	d.h.t.Logf("started: of branches to those of Docker's volumes %.2f", ratios)
}

// processorTime is what a process has used of processors.
func processorTime(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // it runs
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, _ := strconv.Atoi(f[11])   // the kernel writes numbers
	system, _ := strconv.Atoi(f[12]) // as above
	return time.Duration(user+system) * time.Second / 100
}

// memoryOf is what a process has in memory.
func memoryOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // it runs
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "RssAnon") || strings.HasPrefix(line, "RssShmem") {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(lines, ", ")
}
