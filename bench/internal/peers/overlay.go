package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"snapfs/bench/internal/caches"
	"snapfs/bench/internal/program"
	"snapfs/bench/internal/scratch"
	"snapfs/bench/internal/subject"
)

// overlay is an overlay mount above the tree.
type overlay struct {
	mountpoint string
	command    []string // with everything but the mountpoint
	kernel     bool     // serves the mount itself
	mounted    bool
}

// kernelOptions are those that snapfs has the kernel's overlayfs use: directories of the lower can be renamed, and what is
// copied up is copied as a whole.
const kernelOptions = ",redirect_dir=on,metacopy=off"

// Overlayfs is the kernel's overlayfs.
func Overlayfs() subject.Subject[subject.Mount] {
	return subject.Subject[subject.Mount]{
		Name: "overlayfs", Programs: []string{"mount", "umount"},
		Open: openOverlay(kernelOptions, "mount", "-t", "overlay", "overlay"),
	}
}

// FuseOverlayfs is an overlay that is served by a process.
func FuseOverlayfs() subject.Subject[subject.Mount] {
	return subject.Subject[subject.Mount]{
		Name: "fuse-overlayfs", Programs: []string{"fuse-overlayfs", "umount"}, Open: openOverlay("", "fuse-overlayfs"),
	}
}

func openOverlay(options string, command ...string) func(context.Context, subject.Site) (subject.Mount, error) {
	return func(ctx context.Context, at subject.Site) (subject.Mount, error) {
		o := &overlay{mountpoint: filepath.Join(at.Dir, "mnt"), kernel: command[0] == "mount"}
		upper, work := filepath.Join(at.Dir, "upper"), filepath.Join(at.Dir, "work")
		for _, dir := range []string{upper, work, o.mountpoint} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return nil, fmt.Errorf("prepare overlay: %w", err)
			}
		}
		o.command = append(
			slices.Clone(command), "-o", "lowerdir="+at.Tree+",upperdir="+upper+",workdir="+work+options, o.mountpoint,
		)
		return o, o.mount(ctx)
	}
}

func (o *overlay) mount(ctx context.Context) error {
	err := program.Run(ctx, o.command[0], o.command[1:]...)
	o.mounted = err == nil
	return err
}

func (o *overlay) Dir() string                                         { return o.mountpoint }
func (o *overlay) Requests(context.Context) (map[string]uint64, error) { return nil, nil }

func (o *overlay) Cold(ctx context.Context) error {
	if err := o.Close(ctx); err != nil {
		return err
	}
	if err := caches.Empty(); err != nil {
		return err
	}
	return o.mount(ctx)
}

func (o *overlay) Binaries() []string {
	if o.kernel {
		return nil
	}
	path, err := exec.LookPath(o.command[0])
	if err != nil {
		return nil // it was there when the subject was chosen
	}
	return []string{path}
}

// Server finds the process that was started with the mountpoint as its last argument, unless the kernel serves.
func (o *overlay) Server(context.Context) (int, error) {
	if o.kernel {
		return 0, nil
	}
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, fmt.Errorf("find server: %w", err)
	}
	for _, path := range all {
		line, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(line), "\x00"+o.mountpoint+"\x00") {
			continue // it may have ended
		}
		return strconv.Atoi(filepath.Base(filepath.Dir(path)))
	}
	return 0, fmt.Errorf("no process serves %s", o.mountpoint)
}

func (o *overlay) Close(context.Context) error {
	if !o.mounted {
		return nil
	}
	err := scratch.Unmount(o.mountpoint)
	o.mounted = err != nil
	return err
}
