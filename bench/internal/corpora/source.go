package corpora

import (
	"context"
	"fmt"
	"strings"

	"snapfs/bench/internal/program"
)

// sourceCorpus is the history of a source tree: consecutive releases of a Go module.
func sourceCorpus() Corpus {
	const module = "golang.org/x/tools"
	versions := strings.Fields(
		`0.18.0 0.19.0 0.20.0 0.21.0 0.22.0 0.23.0 0.24.0 0.24.1 0.25.0 0.25.1 0.26.0 0.27.0 0.28.0 0.29.0 0.30.0
		0.31.0 0.32.0 0.33.0 0.34.0 0.35.0 0.36.0 0.37.0 0.38.0 0.39.0 0.40.0 0.41.0 0.42.0 0.43.0 0.44.0 0.45.0`,
	)
	return Corpus{
		Name: "C1", recipe: 1, programs: []string{"go", "rsync"}, Disk: 300_000_000, Logical: 260_000_000,
		digest: "3d06aaac849bfbbe93244a65b4eeda35a27bb257c302e889e22d8f627e5f1ce8",
		about:  fmt.Sprintf("source history, %s v%s to v%s", module, versions[0], versions[len(versions)-1]),
		build: func(ctx context.Context, b *Builder) error {
			for _, v := range versions {
				if err := b.mirrorModule(ctx, module+"@v"+v); err != nil {
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

// mirrorModule makes the workspace equal to a module version; files whose contents are equal are not touched.
func (b *Builder) mirrorModule(ctx context.Context, version string) error {
	dir, err := b.moduleDir(ctx, version)
	if err != nil {
		return err
	}
	return program.Run(ctx, "rsync", "-rlc", "--delete", "--chmod=D755,F644", dir+"/", b.Workspace+"/")
}
