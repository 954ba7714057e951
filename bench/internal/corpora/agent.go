package corpora

import (
	"context"
	_ "embed"
	"path/filepath"
	"strconv"

	"snapfs/bench/internal/program"
)

//go:embed scripts/agent_step.py
var agentStep []byte

// goToolchain builds the binary of the agent session; another machine's go downloads it from the module proxy, for
// another compiler makes another binary.
const goToolchain = "go1.26.8"

// agentCorpus is what a coding agent does to a workspace in a long session.
func agentCorpus() Corpus {
	const steps, buildEvery = 61, 5
	return Corpus{
		Name:     "C3",
		recipe:   2,
		long:     true,
		Disk:     2_500_000_000,
		Logical:  4_500_000_000,
		digest:   "9c1a0f706604c7b55183c42233535c5fad663fca3e98ea246edf228928039c08",
		programs: []string{"go", "rsync", "python3"},
		about: "agent session: gopls with vendored modules, edits, 40 MB binary rebuilt, log, SQLite, " +
			"directories moved",
		build: func(ctx context.Context, b *Builder) error {
			if err := b.mirrorModule(ctx, "golang.org/x/tools/gopls@v0.20.0"); err != nil {
				return err
			}
			t := program.Setup{Dir: b.Workspace, Env: []string{"GOFLAGS=-mod=mod", "GOTOOLCHAIN=" + goToolchain}}
			if err := t.Run(ctx, "go", "mod", "vendor"); err != nil {
				return err
			}
			for i := range steps {
				err := program.Setup{Stdin: agentStep}.Run(ctx, "python3", "-", b.Workspace, strconv.Itoa(i))
				if err != nil {
					return err
				}
				if i%buildEvery == 0 {
					t := program.Setup{
						Dir: b.Workspace,
						Env: []string{
							"GOFLAGS=-buildvcs=false -mod=vendor -trimpath", "CGO_ENABLED=0",
							"GOTOOLCHAIN=" + goToolchain, "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1",
						},
					}
					if err := t.Run(ctx, "go", "build", "-o", filepath.Join("bin", "gopls"), "."); err != nil {
						return err
					}
				}
				if err := b.Freeze(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
