package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// resticPeer is restic at its best compression.
func resticPeer() peer {
	return peer{
		name: "restic max", programs: []string{"restic"}, exact: false,
		open: func(ctx context.Context, dir string) (keeper, error) {
			r := &restic{dir: dir, t: tool{env: []string{
				"RESTIC_REPOSITORY=" + dir, "RESTIC_PASSWORD=bench", "RESTIC_CACHE_DIR=" + dir + ".cache", "RESTIC_COMPRESSION=max",
			}}}
			return r, r.t.run(ctx, "restic", "init", "--quiet")
		},
	}
}

type restic struct {
	dir string
	t   tool
	ids []string // of the states' snapshots
}

func (r *restic) store(ctx context.Context, _ int, _, state string) error {
	t := r.t
	t.dir = state
	out, err := t.output(ctx, "restic", "backup", ".", "--json", "--host", "bench", "--ignore-inode", "--ignore-ctime")
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

func (r *restic) settle(context.Context) error { return nil }

func (r *restic) size(context.Context) (int64, error) { return allocated(r.dir) }

func (r *restic) restore(ctx context.Context, i int, dest string) error {
	return r.t.run(ctx, "restic", "restore", r.ids[i], "--target", dest)
}

func (r *restic) drop(ctx context.Context, from, to int) error {
	return r.t.run(ctx, "restic", append([]string{"forget", "--prune", "--max-unused", "0"}, r.ids[from:to]...)...)
}

func (r *restic) close(context.Context) error { return nil }

// borgPeer is borg at its usual zstd level.
func borgPeer() peer {
	return peer{
		name: "borg zstd", programs: []string{"borg"}, exact: false,
		open: func(ctx context.Context, dir string) (keeper, error) {
			b := borg{dir: dir, t: tool{env: []string{
				"BORG_REPO=" + dir, "BORG_BASE_DIR=" + dir + ".base", "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes",
				"BORG_RELOCATED_REPO_ACCESS_IS_OK=yes",
			}}}
			return b, b.t.run(ctx, "borg", "init", "--encryption=none")
		},
	}
}

type borg struct {
	dir string
	t   tool
}

func (b borg) archive(i int) string { return fmt.Sprintf("::s%04d", i) }

func (b borg) store(ctx context.Context, i int, _, state string) error {
	t := b.t
	t.dir = state
	return t.run(ctx, "borg", "create", "--compression", "zstd,3", "--files-cache", "mtime,size", b.archive(i), ".")
}

func (b borg) settle(context.Context) error { return nil }

func (b borg) size(context.Context) (int64, error) { return allocated(b.dir) }

func (b borg) restore(ctx context.Context, i int, dest string) error {
	t := b.t
	t.dir = dest
	return t.run(ctx, "borg", "extract", b.archive(i))
}

func (b borg) drop(ctx context.Context, from, to int) error {
	if from == to {
		return nil
	}
	// The first is an archive of BORG_REPO, the others are names in the same repository. borg says nothing of names that do
	// not exist, so what is left is counted.
	args := []string{"delete", b.archive(from)}
	for i := from + 1; i < to; i++ {
		args = append(args, strings.TrimPrefix(b.archive(i), "::"))
	}
	if err := b.t.run(ctx, "borg", args...); err != nil {
		return err
	}
	left, err := b.t.output(ctx, "borg", "list", "--short")
	if err != nil {
		return err
	}
	for i := from; i < to; i++ {
		if bytes.Contains(left, []byte(strings.TrimPrefix(b.archive(i), "::"))) {
			return fmt.Errorf("borg delete: %s is still there", b.archive(i))
		}
	}
	return b.t.run(ctx, "borg", "compact", "--threshold", "0")
}

func (b borg) close(context.Context) error { return nil }
