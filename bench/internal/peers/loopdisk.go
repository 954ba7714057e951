package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
)

// loopDisk is a file system of its own on a sparse image, mounted through a loop device.
type loopDisk struct {
	image, root string
	serial      int
}

func openLoopDisk(ctx context.Context, scratch, options string, mkfs ...string) (*loopDisk, error) {
	const imageSize = 64 << 30 // sparse
	d := &loopDisk{image: filepath.Join(scratch, "image"), root: filepath.Join(scratch, "disk")}
	if err := errors.Join(
		os.Mkdir(d.root, 0o755), os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, imageSize),
	); err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	if err := program.Run(ctx, mkfs[0], append(mkfs[1:], d.image)...); err != nil {
		return nil, err
	}
	return d, program.Run(ctx, "mount", "-o", "loop,noatime"+options, d.image, d.root)
}

func (d *loopDisk) Dir() string { return filepath.Join(d.root, "live") }

// next is a name on the disk that was not used before.
func (d *loopDisk) next() string {
	d.serial++
	return filepath.Join(d.root, fmt.Sprintf("s%05d", d.serial))
}

func (d *loopDisk) Diff(context.Context, string) error              { return subject.ErrNotOffered }
func (d *loopDisk) Held(context.Context) (time.Duration, error)     { return 0, nil }
func (d *loopDisk) Close(ctx context.Context) error                 { return program.Run(ctx, "umount", d.root) }
func (d *loopDisk) Unrestore(ctx context.Context, dir string) error { return d.Delete(ctx, dir) }
func (d *loopDisk) Delete(ctx context.Context, id string) error {
	return program.Run(ctx, "rm", "-rf", id)
}

func (d *loopDisk) copy(ctx context.Context, from, to string) error {
	return program.Run(ctx, "cp", "-a", "--reflink=always", from, to)
}

// syncDisk waits until everything on the file system of dir is on the disk.
func syncDisk(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}
