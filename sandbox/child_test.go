package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// child runs this program once more, with more environment, until it is killed or ends: by itself, by ctx, or by kill,
// which may come at any time. started, if there is one, is called when it runs, and told for every line that it prints.
// What it says on standard error fails the test.
func child(ctx context.Context, t *testing.T, env []string, started func(kill func()), told func(line []byte, kill func())) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() { _ = cmd.Process.Kill() } // it may have ended
	if started != nil {
		started(kill)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<22) // a line may hold a tree
	for lines.Scan() {
		told(lines.Bytes(), kill)
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	_ = cmd.Wait() // killed
	if stderr.Len() > 0 {
		t.Errorf("the child says: %s", stderr.String())
	}
}
