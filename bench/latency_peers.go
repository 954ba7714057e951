package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// loopDisk is a file system of its own on a sparse image, mounted through a loop device.
type loopDisk struct {
	image, root string
	serial      int
}

func openLoopDisk(ctx context.Context, scratch, options string, mkfs ...string) (*loopDisk, error) {
	const imageSize = 64 << 30 // sparse
	d := &loopDisk{image: filepath.Join(scratch, "image"), root: filepath.Join(scratch, "disk")}
	if err := errors.Join(os.Mkdir(d.root, 0o755), os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, imageSize)); err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	if err := (tool{}).run(ctx, mkfs[0], append(mkfs[1:], d.image)...); err != nil {
		return nil, err
	}
	return d, tool{}.run(ctx, "mount", "-o", "loop,noatime"+options, d.image, d.root)
}

func (d *loopDisk) dir() string { return filepath.Join(d.root, "live") }

// next is a name on the disk that was not used before.
func (d *loopDisk) next() string {
	d.serial++
	return filepath.Join(d.root, fmt.Sprintf("s%05d", d.serial))
}

func (d *loopDisk) diff(context.Context, string) error              { return errUnsupported }
func (d *loopDisk) held(context.Context) (time.Duration, error)     { return 0, nil }
func (d *loopDisk) close(ctx context.Context) error                 { return tool{}.run(ctx, "umount", d.root) }
func (d *loopDisk) unrestore(ctx context.Context, dir string) error { return d.delete(ctx, dir) }
func (d *loopDisk) delete(ctx context.Context, id string) error {
	return tool{}.run(ctx, "rm", "-rf", id)
}

func (d *loopDisk) copy(ctx context.Context, from, to string) error {
	return tool{}.run(ctx, "cp", "-a", "--reflink=always", from, to)
}

// syncDisk waits until everything on the file system of dir is on the disk.
func syncDisk(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(d.Fd())), d.Close())
}

// reflinkHolder copies the tree with shared extents, on XFS.
type reflinkHolder struct{ *loopDisk }

func openReflinkHolder(ctx context.Context, _ *env, tree, scratch string) (holder, error) {
	d, err := openLoopDisk(ctx, scratch, "", "mkfs.xfs", "-q", "-m", "reflink=1")
	if err != nil {
		return nil, err
	}
	if err := (tool{}).run(ctx, "cp", "-a", tree, d.dir()); err != nil {
		return nil, errors.Join(err, d.close(context.WithoutCancel(ctx)))
	}
	return reflinkHolder{d}, nil
}

func (h reflinkHolder) snapshot(ctx context.Context, sync bool) (string, error) {
	to := h.next()
	err := h.copy(ctx, h.dir(), to)
	if err == nil && sync {
		err = syncDisk(h.root)
	}
	return to, err
}

func (h reflinkHolder) restore(ctx context.Context, id string) (string, error) {
	to := h.next()
	return to, h.copy(ctx, id, to)
}

func (h reflinkHolder) rollback(ctx context.Context, id string) error {
	if err := h.delete(ctx, h.dir()); err != nil {
		return err
	}
	return h.copy(ctx, id, h.dir())
}

// btrfsHolder takes subvolume snapshots.
type btrfsHolder struct{ *loopDisk }

func openBtrfsHolder(ctx context.Context, _ *env, tree, scratch string) (holder, error) {
	d, err := openLoopDisk(ctx, scratch, "", "mkfs.btrfs", "--quiet")
	if err != nil {
		return nil, err
	}
	err = tool{}.run(ctx, "btrfs", "subvolume", "create", d.dir())
	if err == nil {
		err = tool{}.run(ctx, "cp", "-a", tree+"/.", d.dir())
	}
	if err != nil {
		return nil, errors.Join(err, d.close(context.WithoutCancel(ctx)))
	}
	return btrfsHolder{d}, nil
}

func (h btrfsHolder) snapshot(ctx context.Context, sync bool) (string, error) {
	to := h.next()
	err := tool{}.run(ctx, "btrfs", "subvolume", "snapshot", "-r", h.dir(), to)
	if err == nil && sync {
		err = syncDisk(h.root)
	}
	return to, err
}

func (h btrfsHolder) restore(ctx context.Context, id string) (string, error) {
	to := h.next()
	return to, tool{}.run(ctx, "btrfs", "subvolume", "snapshot", id, to)
}

func (h btrfsHolder) rollback(ctx context.Context, id string) error {
	if err := h.delete(ctx, h.dir()); err != nil {
		return err
	}
	return tool{}.run(ctx, "btrfs", "subvolume", "snapshot", id, h.dir())
}

func (h btrfsHolder) unrestore(ctx context.Context, dir string) error { return h.delete(ctx, dir) }

func (h btrfsHolder) delete(ctx context.Context, id string) error {
	return tool{}.run(ctx, "btrfs", "subvolume", "delete", id)
}

// squashHolder is how containers are backed up: an archive of the whole tree, which is mounted below a writable overlay.
type squashHolder struct {
	scratch string
	serial  int
	mounts  []string // of the workspace and of restored ones, in the order in which they were made
	image   string   // below the workspace
}

func openSquashHolder(ctx context.Context, _ *env, tree, scratch string) (holder, error) {
	h := &squashHolder{scratch: scratch, image: filepath.Join(scratch, "base.sqsh")}
	if err := h.archive(ctx, tree, h.image); err != nil {
		return nil, err
	}
	if err := h.mount(ctx, h.image, "live"); err != nil {
		return nil, errors.Join(err, h.close(context.WithoutCancel(ctx)))
	}
	return h, nil
}

func (h *squashHolder) archive(ctx context.Context, tree, image string) error {
	return tool{}.run(ctx, "mksquashfs", tree, image, "-comp", "zstd", "-no-progress", "-quiet")
}

// mount shows an image below a writable layer at the directory name.
func (h *squashHolder) mount(ctx context.Context, image, name string) error {
	at := func(what string) string { return filepath.Join(h.scratch, name+"."+what) }
	for _, what := range []string{"lower", "upper", "work", "mnt"} {
		if err := os.MkdirAll(at(what), 0o755); err != nil {
			return err
		}
	}
	if err := (tool{}).run(ctx, "squashfuse", image, at("lower")); err != nil {
		return err
	}
	h.mounts = append(h.mounts, at("lower"))
	err := tool{}.run(ctx, "fuse-overlayfs", "-o", "lowerdir="+at("lower")+",upperdir="+at("upper")+",workdir="+at("work"), at("mnt"))
	if err == nil {
		h.mounts = append(h.mounts, at("mnt"))
	}
	return err
}

// umount takes the mounts of name away, and what was written there.
func (h *squashHolder) umount(ctx context.Context, name string) error {
	for _, what := range []string{"mnt", "lower"} {
		if err := h.umountOne(ctx, filepath.Join(h.scratch, name+"."+what)); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(filepath.Join(h.scratch, name+".upper")), os.RemoveAll(filepath.Join(h.scratch, name+".work")))
}

// umountOne unmounts; a program that was just ended may keep the mount busy for a moment.
func (h *squashHolder) umountOne(ctx context.Context, at string) error {
	var err error
	for range 50 {
		if err = (tool{}).run(ctx, "umount", at); err == nil {
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

func (h *squashHolder) dir() string { return filepath.Join(h.scratch, "live.mnt") }

func (h *squashHolder) snapshot(ctx context.Context, sync bool) (string, error) {
	h.serial++
	image := filepath.Join(h.scratch, fmt.Sprintf("s%05d.sqsh", h.serial))
	err := h.archive(ctx, h.dir(), image)
	if err == nil && sync {
		err = syncDisk(h.scratch)
	}
	return image, err
}

func (h *squashHolder) restore(ctx context.Context, id string) (string, error) {
	h.serial++
	name := fmt.Sprintf("r%05d", h.serial)
	return filepath.Join(h.scratch, name+".mnt"), h.mount(ctx, id, name)
}

func (h *squashHolder) unrestore(ctx context.Context, dir string) error {
	name := filepath.Base(dir)
	return h.umount(ctx, name[:len(name)-len(".mnt")])
}

func (h *squashHolder) rollback(ctx context.Context, id string) error {
	if err := h.umount(ctx, "live"); err != nil {
		return err
	}
	h.image = id
	return h.mount(ctx, id, "live")
}

func (h *squashHolder) delete(_ context.Context, id string) error {
	if id == h.image {
		return nil // the workspace stands on it
	}
	return os.Remove(id)
}

func (h *squashHolder) diff(context.Context, string) error          { return errUnsupported }
func (h *squashHolder) held(context.Context) (time.Duration, error) { return 0, nil }

func (h *squashHolder) close(ctx context.Context) error {
	for len(h.mounts) > 0 {
		if err := h.umountOne(ctx, h.mounts[len(h.mounts)-1]); err != nil {
			return err
		}
	}
	return nil
}
