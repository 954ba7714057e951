package treewalk

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"snapfs/internal/testchild"
)

// childEnv carries the root to be walked to the second process.
const childEnv = "SNAPFS_TREEWALK_ROOT"

// Child turns this process into the walker if WalkApart started it, and else does nothing. Call it first in TestMain.
func Child() {
	root, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	nodes, err := Walk(root)
	if err == nil {
		err = gob.NewEncoder(os.Stdout).Encode(nodes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// WalkApart is Walk in a process of its own; the test binary must call Child in TestMain.
func WalkApart(ctx context.Context, root string) ([]Node, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = testchild.Env(testchild.User, childEnv+"="+root)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("walk %s apart: %w: %s", root, err, strings.TrimSpace(errs.String()))
	}
	var nodes []Node
	if err := gob.NewDecoder(&out).Decode(&nodes); err != nil {
		return nil, fmt.Errorf("walk %s apart: %w", root, err)
	}
	return nodes, nil
}
