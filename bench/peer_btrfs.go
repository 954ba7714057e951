package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// btrfsPeer is a btrfs with zstd on a loop image, a read-only snapshot per state.
func btrfsPeer() peer {
	return peer{
		name: "btrfs zstd", programs: []string{"btrfs", "mkfs.btrfs", "mount", "umount", "rsync"}, root: true, exact: true,
		remark: "its CPU time lacks that of the kernel's own threads, which compress and write",
		open: func(ctx context.Context, dir string) (keeper, error) {
			const imageSize = 16 << 30 // sparse
			b := btrfs{image: dir + ".img", dir: dir}
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(b.image, nil, 0o600), os.Truncate(b.image, imageSize)); err != nil {
				return b, fmt.Errorf("make image: %w", err)
			}
			if err := (tool{}).run(ctx, "mkfs.btrfs", "--quiet", "--data", "single", "--metadata", "single", b.image); err != nil {
				return b, err
			}
			if err := (tool{}).run(ctx, "mount", "-o", "loop,compress=zstd:3,noatime", b.image, dir); err != nil {
				return b, err
			}
			err := tool{}.run(ctx, "btrfs", "subvolume", "create", b.live())
			if err != nil {
				err = errors.Join(err, b.close(context.WithoutCancel(ctx)))
			}
			return b, err
		},
	}
}

type btrfs struct{ image, dir string }

func (b btrfs) live() string { return filepath.Join(b.dir, "live") }

func (b btrfs) snap(i int) string { return filepath.Join(b.dir, fmt.Sprintf("s%04d", i)) }

func (b btrfs) store(ctx context.Context, i int, _, state string) error {
	if err := (tool{}).run(ctx, "rsync", append(rsyncArgs(), "-A", "--inplace", "--no-whole-file", state+"/", b.live()+"/")...); err != nil {
		return err
	}
	return tool{}.run(ctx, "btrfs", "subvolume", "snapshot", "-r", b.live(), b.snap(i))
}

func (b btrfs) settle(ctx context.Context) error {
	return tool{}.run(ctx, "btrfs", "filesystem", "sync", b.dir)
}

// size is what the file system says it uses, all of it.
func (b btrfs) size(ctx context.Context) (int64, error) {
	if err := b.settle(ctx); err != nil {
		return 0, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(b.dir, &st); err != nil {
		return 0, fmt.Errorf("statfs: %w", err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize, nil
}

func (b btrfs) restore(ctx context.Context, i int, dest string) error {
	return tool{}.run(ctx, "cp", "-a", b.snap(i)+"/.", dest)
}

func (b btrfs) drop(ctx context.Context, from, to int) error {
	args := []string{"subvolume", "delete", "--commit-after"}
	for i := from; i < to; i++ {
		args = append(args, b.snap(i))
	}
	if err := (tool{}).run(ctx, "btrfs", args...); err != nil {
		return err
	}
	return tool{}.run(ctx, "btrfs", "subvolume", "sync", b.dir)
}

func (b btrfs) close(ctx context.Context) error {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || !bytes.Contains(mounts, []byte(" "+b.dir+" ")) {
		return err
	}
	return tool{}.run(ctx, "umount", b.dir)
}
