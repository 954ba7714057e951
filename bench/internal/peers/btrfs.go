package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
	"snapfs/bench/internal/tree"
)

// Btrfs is a btrfs with zstd on a loop image, a read-only snapshot per state.
func Btrfs() subject.Subject[subject.Store] {
	return subject.Subject[subject.Store]{
		Name:     "btrfs zstd",
		Programs: []string{"btrfs", "mkfs.btrfs", "mount", "umount", "rsync"},
		Root:     true,
		Keeps:    subject.KeepsAll,
		Remark:   "its CPU time lacks that of the kernel's own threads, which compress and write",
		Open: func(ctx context.Context, at subject.Site) (subject.Store, error) {
			dir := filepath.Join(at.Dir, "repo")
			const imageSize = 16 << 30 // sparse
			b := btrfs{image: dir + ".img", dir: dir}
			if err := errors.Join(
				os.Mkdir(dir, 0o755), os.WriteFile(b.image, nil, 0o600), os.Truncate(b.image, imageSize),
			); err != nil {
				return b, fmt.Errorf("make image: %w", err)
			}
			if err := program.Run(
				ctx, "mkfs.btrfs", "--quiet", "--data", "single", "--metadata", "single", b.image,
			); err != nil {
				return b, err
			}
			if err := program.Run(ctx, "mount", "-o", "loop,compress=zstd:3,noatime", b.image, dir); err != nil {
				return b, err
			}
			err := program.Run(ctx, "btrfs", "subvolume", "create", b.live())
			if err != nil {
				err = errors.Join(err, b.Close(context.WithoutCancel(ctx)))
			}
			return b, err
		},
	}
}

type btrfs struct{ image, dir string }

func (b btrfs) live() string { return filepath.Join(b.dir, "live") }

func (b btrfs) snap(i int) string { return filepath.Join(b.dir, fmt.Sprintf("s%04d", i)) }

func (b btrfs) Store(ctx context.Context, i int, _, state string) error {
	if err := tree.Mirror(ctx, state, b.live(), "-A", "--inplace", "--no-whole-file"); err != nil {
		return err
	}
	return program.Run(ctx, "btrfs", "subvolume", "snapshot", "-r", b.live(), b.snap(i))
}

func (b btrfs) Settle(ctx context.Context) error {
	return program.Run(ctx, "btrfs", "filesystem", "sync", b.dir)
}

// Size is what the file system says it uses, all of it.
func (b btrfs) Size(ctx context.Context) (int64, error) {
	if err := b.Settle(ctx); err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(b.dir, &st); err != nil {
		return 0, fmt.Errorf("statfs: %w", err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, nil
}

func (b btrfs) Restore(ctx context.Context, i int, dest string) error {
	return program.Run(ctx, "cp", "-a", b.snap(i)+"/.", dest)
}

func (b btrfs) Drop(ctx context.Context, from, to int) error {
	args := []string{"subvolume", "delete", "--commit-after"}
	for i := from; i < to; i++ {
		args = append(args, b.snap(i))
	}
	if err := program.Run(ctx, "btrfs", args...); err != nil {
		return err
	}
	return program.Run(ctx, "btrfs", "subvolume", "sync", b.dir)
}

func (b btrfs) Close(ctx context.Context) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || !bytes.Contains(mounts, []byte(" "+b.dir+" ")) {
		return err
	}
	return program.Run(ctx, "umount", b.dir)
}
