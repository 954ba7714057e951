package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/tree"
)

// Restic is restic at its best compression.
func Restic() subject.Subject[subject.Store] {
	return subject.Subject[subject.Store]{
		Name: "restic max", Programs: []string{"restic"},
		Open: func(ctx context.Context, at subject.Site) (subject.Store, error) {
			dir := filepath.Join(at.Dir, "repo")
			r := &restic{dir: dir, t: program.Setup{Env: []string{
				"RESTIC_REPOSITORY=" + dir,
				"RESTIC_PASSWORD=bench",
				"RESTIC_CACHE_DIR=" + dir + ".cache",
				"RESTIC_COMPRESSION=max",
			}}}
			return r, r.t.Run(ctx, "restic", "init", "--quiet")
		},
	}
}

type restic struct {
	dir string
	t   program.Setup
	ids []string // of the states' snapshots
}

func (r *restic) Store(ctx context.Context, _ int, _, state string) error {
	t := r.t
	t.Dir = state
	out, err := t.Output(ctx, "restic", "backup", ".", "--json", "--host", "bench", "--ignore-inode", "--ignore-ctime")
	if err != nil {
		return err
	}
	all := strings.Split(strings.TrimSpace(string(out)), "\n")
	var summary struct {
		ID string `json:"snapshot_id"`
	}
	if err := json.Unmarshal([]byte(all[len(all)-1]), &summary); err != nil || summary.ID == "" {
		return fmt.Errorf("restic backup: no snapshot in %.100q: %w", all[len(all)-1], err)
	}
	r.ids = append(r.ids, summary.ID)
	return nil
}

func (r *restic) Settle(context.Context) error { return nil }

func (r *restic) Size(context.Context) (int64, error) { return tree.Allocated(r.dir) }

func (r *restic) Restore(ctx context.Context, i int, dest string) error {
	return r.t.Run(ctx, "restic", "restore", r.ids[i], "--target", dest)
}

func (r *restic) Drop(ctx context.Context, from, to int) error {
	return r.t.Run(ctx, "restic", append([]string{"forget", "--prune", "--max-unused", "0"}, r.ids[from:to]...)...)
}

func (r *restic) Close(context.Context) error { return nil }
