package peers

import (
	"context"
	"errors"

	"snapfs/bench/internal/program"
	"snapfs/bench/internal/subject"
)

// reflinks are copies on a disk of their own.
type reflinks struct{ *loopDisk }

// Reflinks copies trees with shared extents, on XFS.
func Reflinks() subject.Subject[subject.Workspace] {
	return subject.Subject[subject.Workspace]{
		Name:     "cp --reflink",
		Programs: []string{"cp", "mkfs.xfs", "mount", "umount"},
		Most:     100_000,
		Open:     openReflinks,
	}
}

func openReflinks(ctx context.Context, at subject.Site) (subject.Workspace, error) {
	d, err := openLoopDisk(ctx, at.Dir, "", "mkfs.xfs", "-q", "-m", "reflink=1")
	if err != nil {
		return nil, err
	}
	if err := program.Run(ctx, "cp", "-a", at.Tree, d.Dir()); err != nil {
		return nil, errors.Join(err, d.Close(context.WithoutCancel(ctx)))
	}
	return reflinks{d}, nil
}

func (h reflinks) Snapshot(ctx context.Context, sync bool) (string, error) {
	to := h.next()
	err := h.copy(ctx, h.Dir(), to)
	if err == nil && sync {
		err = syncDisk(h.root)
	}
	return to, err
}

func (h reflinks) Restore(ctx context.Context, id string) (string, error) {
	to := h.next()
	return to, h.copy(ctx, id, to)
}

func (h reflinks) Rollback(ctx context.Context, id string) error {
	if err := h.Delete(ctx, h.Dir()); err != nil {
		return err
	}
	return h.copy(ctx, id, h.Dir())
}
