package main

import (
	"context"
	_ "embed"
	"path/filepath"
	"strconv"
)

//go:embed scripts/agent_step.py
var agentStep []byte

// agentCorpus is what a coding agent does to a workspace in a long session.
func agentCorpus() corpus {
	const steps, buildEvery = 61, 5
	return corpus{
		name: "C3", recipe: 1, long: true, programs: []string{"go", "rsync", "python3"},
		about: "agent session: gopls with vendored modules, edits, 40 MB binary rebuilt, log, SQLite, directories moved",
		build: func(ctx context.Context, b *builder) error {
			if err := b.mirrorModule(ctx, "golang.org/x/tools/gopls@v0.20.0"); err != nil {
				return err
			}
			if err := (tool{dir: b.ws, env: []string{"GOFLAGS=-mod=mod"}}).run(ctx, "go", "mod", "vendor"); err != nil {
				return err
			}
			for i := range steps {
				err := tool{stdin: agentStep}.run(ctx, "python3", "-", b.ws, strconv.Itoa(i))
				if err != nil {
					return err
				}
				if i%buildEvery == 0 {
					t := tool{dir: b.ws, env: []string{"GOFLAGS=-buildvcs=false -mod=vendor -trimpath", "CGO_ENABLED=0"}}
					if err := t.run(ctx, "go", "build", "-o", filepath.Join("bin", "gopls"), "."); err != nil {
						return err
					}
				}
				if err := b.freeze(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
