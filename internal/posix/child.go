package posix

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"snapfs/internal/testchild"
)

// childEnv tells the test binary to run the suite: "prepare DIR" or "check DIR".
const childEnv = "SNAPFS_POSIX"

// Child runs the suite if Apart started this process, and else does nothing. Call it first in TestMain.
func Child() {
	what, dir, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return
	}
	cases, err := Cases()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	half := Check
	if what == "prepare" {
		half = Prepare
	}
	if err := json.NewEncoder(os.Stdout).Encode(half(cases, dir)); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Apart runs one half of the suite, "prepare" or "check", in a process of its own made of the same test binary: the
// test itself does not touch a mount that may hang.
func Apart(ctx context.Context, half, dir string) ([]Outcome, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = testchild.Env(testchild.User, childEnv+"="+half+" "+dir)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", half, dir, err)
	}
	var all []Outcome
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("%s in %s: %w", half, dir, err)
	}
	return all, nil
}
