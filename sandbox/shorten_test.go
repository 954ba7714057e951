package sandbox

import (
	"context"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"snapfs/sandbox/internal/catalog"
)

// TestMountedStaysShallow: a workspace that stays mounted gets no deeper than one that is mounted now, and what
// programs have open does not notice, not even when the workspace is rolled back to a layer that has gone into a tier.
func TestMountedStaysShallow(t *testing.T) {
	y := newHistory(t)
	y.grow(4)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, "sh", "-ec", `cd "$M/base/2"; exec 8< ../../d/f1 9>> ../../d/f3; echo ready; read line; echo late >&9; cat <&8; ls`)
	program.Dir, program.WaitDelay = "/", time.Second
	program.Env = append(os.Environ(), "M="+y.at)
	in, err := program.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(out, ready); err != nil {
		t.Fatal(err)
	}
	y.sh(`rm "$M/d/f1"`) // it goes on to be read
	const depth = 2*catalog.TierFan + 6
	y.grow(depth - 4)
	y.collect() // waits for merges
	want := y.sh(`cd "$M"; find . -type f | sort | xargs cksum; stat -c "%n %i %h" $(find . | sort)`)
	y.grow(1)
	l := y.h.liveOf("w")
	lowers := func() int {
		defer l.lockStack()()
		return len(l.stack.Lowers())
	}
	if n := lowers(); n > 2*catalog.TierFan || len(y.warnings()) > 0 {
		t.Errorf("%d lowers after %d snapshots; warnings: %v", n, depth+1, y.warnings())
	}
	rollback := func(i int) {
		t.Helper()
		if _, err := y.h.Rollback(t.Context(), RollbackRequest{Workspace: "w", Snapshot: y.ids[i]}); err != nil {
			t.Fatal(err)
		}
	}
	rollback(depth - 1)
	if got := y.sh(`cd "$M"; find . -type f | sort | xargs cksum; stat -c "%n %i %h" $(find . | sort)`); got != want {
		t.Errorf("the tree has changed:\n%s\nwant\n%s", got, want)
	}
	before := lowers()
	rollback(6)
	if n := lowers(); n > before {
		t.Errorf("%d lowers after the rollback, %d before", n, before)
	}
	if _, err := io.WriteString(in, "go on\n"); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("the program: %v", err)
	}
	if string(said) != "1\nfile\n" {
		t.Errorf("what the program had open: %q", said)
	}
	if got := y.sh(`cat "$M/d/f3"`); got != "3\nlate\n" {
		t.Errorf("a file that was open all the time and the same in all snapshots: %q", got)
	}
	y.same(0)
}
