package engine

import (
	"context"
	"os"
	"strings"

	"snapfs/bench/internal/program"
)

// Engine is the complete command of snapfs, built from the sources that this program was built from.
type Engine struct {
	Binary string // where it is, once it is built
}

// Build builds it. This module does not have what only the command needs, so it is built in the module of snapfs.
func (e Engine) Build(ctx context.Context) error {
	dir, err := program.Output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "snapfs")
	if err != nil {
		return err
	}
	return program.Setup{Dir: strings.TrimSpace(string(dir))}.Run(ctx, "go", "build", "-o", e.Binary, "./cmd/snapfs")
}

// ready builds it unless that was done.
func (e Engine) ready(ctx context.Context) error {
	if _, err := os.Stat(e.Binary); err == nil {
		return nil
	}
	return e.Build(ctx)
}
