package main

import (
	"context"
	"fmt"
	"os/exec"
)

// touch makes a file from a process of its own.
func touch(ctx context.Context, path string) error {
	if out, err := exec.CommandContext(ctx, "touch", path).CombinedOutput(); err != nil {
		return fmt.Errorf("touch %s: %w: %s", path, err, out)
	}
	return nil
}
