package peers

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/tree"
)

// Borg is borg at its usual zstd level.
func Borg() subject.Subject[subject.Store] {
	return subject.Subject[subject.Store]{
		Name: "borg zstd", Programs: []string{"borg"},
		Open: func(ctx context.Context, at subject.Site) (subject.Store, error) {
			dir := filepath.Join(at.Dir, "repo")
			b := borg{dir: dir, t: program.Setup{Env: []string{
				"BORG_REPO=" + dir, "BORG_BASE_DIR=" + dir + ".base", "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes",
				"BORG_RELOCATED_REPO_ACCESS_IS_OK=yes",
			}}}
			return b, b.t.Run(ctx, "borg", "init", "--encryption=none")
		},
	}
}

type borg struct {
	dir string
	t   program.Setup
}

func (b borg) archive(i int) string { return fmt.Sprintf("::s%04d", i) }

func (b borg) Store(ctx context.Context, i int, _, state string) error {
	t := b.t
	t.Dir = state
	return t.Run(ctx, "borg", "create", "--compression", "zstd,3", "--files-cache", "mtime,size", b.archive(i), ".")
}

func (b borg) Settle(context.Context) error { return nil }

func (b borg) Size(context.Context) (int64, error) { return tree.Allocated(b.dir) }

func (b borg) Restore(ctx context.Context, i int, dest string) error {
	t := b.t
	t.Dir = dest
	return t.Run(ctx, "borg", "extract", b.archive(i))
}

func (b borg) Drop(ctx context.Context, from, to int) error {
	if from == to {
		return nil
	}
	// The first is an archive of BORG_REPO, the others are names in the same repository. borg says nothing of names
	// that do not exist, so what is left is counted.
	args := []string{"delete", b.archive(from)}
	for i := from + 1; i < to; i++ {
		args = append(args, strings.TrimPrefix(b.archive(i), "::"))
	}
	if err := b.t.Run(ctx, "borg", args...); err != nil {
		return err
	}
	left, err := b.t.Output(ctx, "borg", "list", "--short")
	if err != nil {
		return err
	}
	for i := from; i < to; i++ {
		if bytes.Contains(left, []byte(strings.TrimPrefix(b.archive(i), "::"))) {
			return fmt.Errorf("borg delete: %s is still there", b.archive(i))
		}
	}
	return b.t.Run(ctx, "borg", "compact", "--threshold", "0")
}

func (b borg) Close(context.Context) error { return nil }
