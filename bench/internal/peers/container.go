package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
)

// container is a workspace whose snapshots are archives.
type container struct {
	scratch string
	serial  int
	mounts  []string // of the workspace and of restored ones, in the order in which they were made
	image   string   // below the workspace
}

// Container archives the whole tree and mounts archives below a writable overlay, as containers are backed up.
func Container() subject.Subject[subject.Workspace] {
	return subject.Subject[subject.Workspace]{
		Name:     "squashfs + fuse-overlayfs",
		Programs: []string{"mksquashfs", "squashfuse", "fuse-overlayfs", "umount"},
		Most:     100_000,
		Open:     openContainer,
	}
}

func openContainer(ctx context.Context, at subject.Site) (subject.Workspace, error) {
	h := &container{scratch: at.Dir, image: filepath.Join(at.Dir, "base.sqsh")}
	if err := h.archive(ctx, at.Tree, h.image); err != nil {
		return nil, err
	}
	if err := h.mount(ctx, h.image, "live"); err != nil {
		return nil, errors.Join(err, h.Close(context.WithoutCancel(ctx)))
	}
	return h, nil
}

func (h *container) archive(ctx context.Context, tree, image string) error {
	return program.Run(ctx, "mksquashfs", tree, image, "-comp", "zstd", "-no-progress", "-quiet")
}

// mount shows an image below a writable layer at the directory name.
func (h *container) mount(ctx context.Context, image, name string) error {
	path := func(what string) string { return filepath.Join(h.scratch, name+"."+what) }
	for _, what := range []string{"lower", "upper", "work", "mnt"} {
		if err := os.MkdirAll(path(what), 0o755); err != nil {
			return err
		}
	}
	if err := program.Run(ctx, "squashfuse", image, path("lower")); err != nil {
		return err
	}
	h.mounts = append(h.mounts, path("lower"))
	err := program.Run(
		ctx, "fuse-overlayfs", "-o", "lowerdir="+path("lower")+",upperdir="+path("upper")+",workdir="+path("work"),
		path("mnt"),
	)
	if err == nil {
		h.mounts = append(h.mounts, path("mnt"))
	}
	return err
}

// umount takes the mounts of name away, and what was written there.
func (h *container) umount(ctx context.Context, name string) error {
	for _, what := range []string{"mnt", "lower"} {
		if err := h.umountOne(ctx, filepath.Join(h.scratch, name+"."+what)); err != nil {
			return err
		}
	}
	return errors.Join(
		os.RemoveAll(filepath.Join(h.scratch, name+".upper")), os.RemoveAll(filepath.Join(h.scratch, name+".work")),
	)
}

// umountOne unmounts; a program that was just ended may keep the mount busy for a moment.
func (h *container) umountOne(ctx context.Context, at string) error {
	var err error
	for range 50 {
		if err = program.Run(ctx, "umount", at); err == nil {
			for i, m := range h.mounts {
				if m == at {
					h.mounts = append(h.mounts[:i], h.mounts[i+1:]...)
					break
				}
			}
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func (h *container) Dir() string { return filepath.Join(h.scratch, "live.mnt") }

func (h *container) Snapshot(ctx context.Context, sync bool) (string, error) {
	h.serial++
	image := filepath.Join(h.scratch, fmt.Sprintf("s%05d.sqsh", h.serial))
	err := h.archive(ctx, h.Dir(), image)
	if err == nil && sync {
		err = syncDisk(h.scratch)
	}
	return image, err
}

func (h *container) Restore(ctx context.Context, id string) (string, error) {
	h.serial++
	name := fmt.Sprintf("r%05d", h.serial)
	return filepath.Join(h.scratch, name+".mnt"), h.mount(ctx, id, name)
}

func (h *container) Unrestore(ctx context.Context, dir string) error {
	name := filepath.Base(dir)
	return h.umount(ctx, name[:len(name)-len(".mnt")])
}

func (h *container) Rollback(ctx context.Context, id string) error {
	if err := h.umount(ctx, "live"); err != nil {
		return err
	}
	h.image = id
	return h.mount(ctx, id, "live")
}

func (h *container) Delete(_ context.Context, id string) error {
	if id == h.image {
		return nil // it is the lower of the workspace
	}
	return os.Remove(id)
}

func (h *container) Diff(context.Context, string) error          { return subject.ErrNotOffered }
func (h *container) Held(context.Context) (time.Duration, error) { return 0, nil }

func (h *container) Close(ctx context.Context) error {
	for len(h.mounts) > 0 {
		if err := h.umountOne(ctx, h.mounts[len(h.mounts)-1]); err != nil {
			return err
		}
	}
	return nil
}
