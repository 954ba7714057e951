package peers

import (
	"context"
	"path/filepath"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
)

// Squashfs keeps one squashfs image per state, as container backups do.
func Squashfs(compression string) subject.Subject[subject.Store] {
	return subject.Subject[subject.Store]{
		Name: "mksquashfs " + compression, Programs: []string{"mksquashfs", "unsquashfs"},
		Open: func(_ context.Context, at subject.Site) (subject.Store, error) {
			dir := filepath.Join(at.Dir, "repo")
			f, err := openFiles(dir, ".sqsh")
			return squash{f, compression}, err
		},
	}
}

type squash struct {
	files
	compression string
}

func (s squash) Store(ctx context.Context, i int, _, state string) error {
	return program.Run(
		ctx, "mksquashfs", state, s.path(i), "-comp", s.compression, "-noappend", "-no-progress", "-quiet",
	)
}

func (s squash) Restore(ctx context.Context, i int, dest string) error {
	return program.Run(ctx, "unsquashfs", "-f", "-no-progress", "-quiet", "-d", dest, s.path(i))
}
