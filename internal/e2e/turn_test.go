package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"snapfs/internal/testseed"
	"snapfs/internal/treewalk"
)

// turnScript is what an agent's shell may do to a tree in one turn.
func turnScript(rng *rand.Rand) string {
	places := []string{".", "d0", "d1", "d0/d2", "d1/d3", "src/a"}
	path := func() string {
		return fmt.Sprintf("%s/n%d", places[rng.IntN(len(places))], rng.IntN(7))
	}
	dir := func() string { return places[1+rng.IntN(len(places)-1)] }
	ops := []func() string{
		func() string { return fmt.Sprintf("seq %d > %s", rng.IntN(3000), path()) },
		func() string { return fmt.Sprintf("seq %d >> %s", rng.IntN(100), path()) },
		func() string {
			return fmt.Sprintf("printf %d | dd of=%s bs=1 seek=%d conv=notrunc", rng.IntN(99), path(), rng.IntN(200_000))
		},
		func() string { return fmt.Sprintf("truncate -s %d %s", rng.IntN(50_000), path()) },
		func() string { return "rm -rf " + path() },
		func() string { return "rm -rf " + dir() },
		func() string { return "mkdir -p " + dir() },
		func() string { return fmt.Sprintf("mv -T %s %s", path(), path()) },
		func() string { return fmt.Sprintf("mv -T %s %s", dir(), path()) },
		func() string { return fmt.Sprintf("ln %s %s", path(), path()) },
		func() string { return fmt.Sprintf("ln -s ../n%d %s", rng.IntN(9), path()) },
		func() string { return fmt.Sprintf("chmod %o %s", rng.IntN(0o7777+1)|0o700, path()) },
		func() string { return fmt.Sprintf("chown %d:%d %s", rng.IntN(3), rng.IntN(3), path()) },
		func() string { return fmt.Sprintf("touch -d @%d.%09d %s", rng.IntN(1<<31), rng.IntN(1e9), path()) },
		func() string { return fmt.Sprintf("touch -d @%d.%09d %s", rng.IntN(1<<31), rng.IntN(1e9), dir()) },
		func() string { return fmt.Sprintf("setfattr -n user.k%d -v v%d %s", rng.IntN(3), rng.IntN(9), path()) },
		func() string { return fmt.Sprintf("setfattr -x user.k%d %s", rng.IntN(3), path()) },
		func() string { return "mkfifo " + dir() + "/fifo" }, // which none of the others opens
		func() string { return fmt.Sprintf("cp -a %s %s", dir(), path()) },
	}
	var script strings.Builder
	script.WriteString("cd \"$1\"; {\n")
	for range 1 + rng.IntN(8) {
		fmt.Fprintf(&script, "%s || :\n", ops[rng.IntN(len(ops))]())
	}
	return script.String() + "} > /dev/null 2>&1"
}

// TestTurns undoes a session of a shell turn by turn, and brings it back.
func TestTurns(t *testing.T) {
	h := newHome(t)
	rng := rand.New(rand.NewPCG(testseed.Of(t), 0))
	turns := 12
	if os.Getenv("SNAPFS_LONG")+os.Getenv("SNAPFS_HUNT") != "" {
		turns = 200
	}
	shell(t, soon, h.tmp, `mkdir from; cd from; mkdir -p src/a d0/d2 d1/d3; for n in 1 2 3; do seq $((n * 1000)) > src/a/n$n; ln src/a/n$n d0/n$n; done`)
	at := h.path("m")
	h.ok("up", "w", at, "--from", h.path("from"))
	trees := [][]treewalk.Node{walk(t, at)}
	for range turns {
		shell(t, soon, h.tmp, turnScript(rng), at)
		r := h.run("turn", "w")
		require.Zero(t, r.code, r.err)
		if strings.Contains(r.err, "nothing changed") {
			same(t, "unchanged", trees[len(trees)-1], walk(t, at), treewalk.Options{})
			continue
		}
		trees = append(trees, walk(t, at))
	}
	last := len(trees) - 1
	for i := last - 1; i >= 0; i-- {
		h.ok("undo", "w")
		same(t, "undone to turn "+itoa(i), trees[i], walk(t, at), treewalk.Options{})
	}
	h.fails(4, "nothing to undo", "undo", at)
	for now := 0; now < last; {
		step := 1 + rng.IntN(last-now)
		h.ok("redo", "w", itoa(step))
		now += step
		same(t, "redone to turn "+itoa(now), trees[now], walk(t, at), treewalk.Options{})
	}
	h.ok("turns", at, "--limit", "5", "--all")
	h.ok("check", "--read-data")
}
