package mountio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/suite"
)

// disk is where everything of a fixture lies: trees, homes, uppers.
//
// One in memory is a fresh ext4, with its journal, on a loop device over a tmpfs. It is the same on every machine, and
// what is cold on it costs processor time only. Used by one goroutine.
type disk struct {
	dir    string
	memory string // mount of the tmpfs; "" where dir is on the disk of the scratch directory
	about  string
}

// errDisk means that a disk in memory cannot be made here.
var errDisk = errors.New("no disk in memory")

// openDisk makes a disk that has room for the workloads on a tree of that many bytes.
func openDisk(ctx context.Context, kind, scratch string, tree int64) (*disk, error) {
	if kind != suite.DiskHere {
		d, err := openMemory(ctx, scratch, tree)
		if err == nil || kind == suite.DiskMemory || !errors.Is(err, errDisk) {
			return d, err
		}
	}
	d := &disk{dir: filepath.Join(scratch, "disk"), about: "the scratch directory's disk"}
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make disk: %w", err)
	}
	return d, nil
}

func openMemory(ctx context.Context, scratch string, tree int64) (*disk, error) {
	size := int64(5<<30) + 6*tree
	free, err := availableMemory()
	if err != nil {
		return nil, err
	}
	if size > free/2 {
		return nil, fmt.Errorf("%w: it would take up to %d MB of %d MB available", errDisk, size>>20, free>>20)
	}
	d := &disk{
		dir: filepath.Join(scratch, "disk"), memory: filepath.Join(scratch, "memory"),
		about: "ext4 on a loop device in memory",
	}
	image := filepath.Join(d.memory, "image")
	for _, dir := range []string{d.dir, d.memory} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make disk: %w", err)
		}
	}
	if err := unix.Mount("bench", d.memory, "tmpfs", 0, "size="+strconv.FormatInt(size+size/8, 10)); err != nil {
		return nil, fmt.Errorf("%w: mount tmpfs: %w", errDisk, err)
	}
	for _, step := range [][]string{
		{"truncate", "-s", strconv.FormatInt(size, 10), image},
		// Nothing may be left for the kernel to initialise while workloads run.
		{"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", image},
		{"mount", "-t", "ext4", "-o", "loop", image, d.dir},
	} {
		if err := program.Run(ctx, step[0], step[1:]...); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", errDisk, err), d.closeMemory())
		}
	}
	return d, nil
}

// availableMemory is what programs may take without swapping, in bytes.
func availableMemory() (int64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("available memory: %w", err)
	}
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), "MemAvailable:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("available memory: %w", err)
			}
			return kb << 10, nil
		}
	}
	return 0, errors.New("available memory: not in /proc/meminfo")
}

// trim gives memory back that removed files still take.
func (d *disk) trim(ctx context.Context) error {
	if d.memory == "" {
		return nil
	}
	return program.Run(ctx, "fstrim", d.dir)
}

// close unmounts the disk and forgets what is on it; on the scratch directory's disk it is removed.
func (d *disk) close() error {
	if d.memory == "" {
		if err := os.RemoveAll(d.dir); err != nil {
			return fmt.Errorf("remove disk: %w", err)
		}
		return nil
	}
	if err := scratch.Unmount(d.dir); err != nil {
		return err
	}
	return d.closeMemory()
}

func (d *disk) closeMemory() error {
	// A mount namespace that was made meanwhile may hold a copy of the disk, which keeps the image in use until it
	// ends.
	if err := scratch.Unmount(d.memory); err != nil {
		if err := unix.Unmount(d.memory, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", d.memory, err)
		}
	}
	for _, dir := range []string{d.dir, d.memory} {
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("remove disk: %w", err)
		}
	}
	return nil
}
