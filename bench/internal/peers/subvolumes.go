package peers

import (
	"context"
	"errors"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
)

// subvolumes are on a disk of their own.
type subvolumes struct{ *loopDisk }

// Subvolumes takes snapshots of subvolumes, on btrfs.
func Subvolumes() subject.Subject[subject.Workspace] {
	return subject.Subject[subject.Workspace]{
		Name: "btrfs", Programs: []string{"btrfs", "mkfs.btrfs", "mount", "umount"}, Open: openSubvolumes,
	}
}

func openSubvolumes(ctx context.Context, at subject.Site) (subject.Workspace, error) {
	d, err := openLoopDisk(ctx, at.Dir, "", "mkfs.btrfs", "--quiet")
	if err != nil {
		return nil, err
	}
	err = program.Run(ctx, "btrfs", "subvolume", "create", d.Dir())
	if err == nil {
		err = program.Run(ctx, "cp", "-a", at.Tree+"/.", d.Dir())
	}
	if err != nil {
		return nil, errors.Join(err, d.Close(context.WithoutCancel(ctx)))
	}
	return subvolumes{d}, nil
}

func (h subvolumes) Snapshot(ctx context.Context, sync bool) (string, error) {
	to := h.next()
	err := program.Run(ctx, "btrfs", "subvolume", "snapshot", "-r", h.Dir(), to)
	if err == nil && sync {
		err = syncDisk(h.root)
	}
	return to, err
}

func (h subvolumes) Restore(ctx context.Context, id string) (string, error) {
	to := h.next()
	return to, program.Run(ctx, "btrfs", "subvolume", "snapshot", id, to)
}

func (h subvolumes) Rollback(ctx context.Context, id string) error {
	if err := h.Delete(ctx, h.Dir()); err != nil {
		return err
	}
	return program.Run(ctx, "btrfs", "subvolume", "snapshot", id, h.Dir())
}

func (h subvolumes) Unrestore(ctx context.Context, dir string) error { return h.Delete(ctx, dir) }

func (h subvolumes) Delete(ctx context.Context, id string) error {
	return program.Run(ctx, "btrfs", "subvolume", "delete", id)
}
