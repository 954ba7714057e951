package corpora

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"

	"snapfs/bench/internal/program"
)

//go:embed scripts/git_step.py
var gitStep []byte

// repositoryCorpus is a work tree with its repository: what an agent commits, in small steps, and a repack at the end.
// The index of git has inode numbers, so that every build has another digest.
func repositoryCorpus() Corpus {
	const module, first, last, steps = "golang.org/x/tools", "v0.28.0", "v0.35.0", 81
	return Corpus{
		Name: "C6", recipe: 1, long: true, programs: []string{"go", "rsync", "python3", "git"},
		Disk: 300_000_000, Logical: 1_700_000_000,
		about: fmt.Sprintf("git repository, %s %s to %s in %d commits of 6 files, git gc", module, first, last, steps),
		build: func(ctx context.Context, b *Builder) error {
			if err := b.mirrorModule(ctx, module+"@"+first); err != nil {
				return err
			}
			release, err := b.moduleDir(ctx, module+"@"+last)
			if err != nil {
				return err
			}
			for i := range steps {
				args := []string{"-", b.Workspace, release, strconv.Itoa(i)}
				if i == steps-1 {
					args = append(args, "gc")
				}
				if err := (program.Setup{Stdin: gitStep}).Run(ctx, "python3", args...); err != nil {
					return err
				}
				if err := b.Freeze(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// moduleDir gives the directory with a module version.
func (b *Builder) moduleDir(ctx context.Context, version string) (string, error) {
	out, err := program.Setup{Dir: b.dir, Env: []string{"GOFLAGS=-mod=mod"}}.Output(
		ctx, "go", "mod", "download", "-json", version,
	)
	if err != nil {
		return "", err
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil || m.Dir == "" {
		return "", fmt.Errorf("download %s: no directory in %.100q: %w", version, out, err)
	}
	return m.Dir, nil
}
