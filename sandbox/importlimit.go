package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
)

// What a workspace with limits is made from is its own until somebody else has it, too: if it takes more than the limits,
// there is no workspace. What it takes in the end is known when it is stored, since it is compressed, and the store may
// have it; while it is read, an import ends soon after it has stored more than the limits. What the store had already,
// and nothing else needs, is found out when it is there.

// mostFor is what an import for a workspace may take; 0 is no limit.
func mostFor(w *catalog.Workspace) layers.Usage {
	if w.Quota == nil {
		return layers.Usage{}
	}
	return limitOf(*w.Quota)
}

// exceeds reports whether something is more than limits, of which 0 is none.
func exceeds(u, limit layers.Usage) bool {
	return limit.Bytes > 0 && u.Bytes > limit.Bytes || limit.Inodes > 0 && u.Inodes > limit.Inodes
}

// An inode of an image takes so much at most, beside its contents and its extended attributes.
const imageInode = 1 << 10

// surelyFits reports whether a directory fits into limits in any case, so that it may be imported when its workspace is there
// already. It looks at no more of it than it takes to tell.
func (h *Home) surelyFits(ctx context.Context, path string, q api.Quota) (bool, error) {
	_, whole, err := measureSource(ctx, path, limitOf(q))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the import says so
	}
	if err != nil {
		return false, pathError(path, err)
	}
	return whole, nil
}

// measureSource tells how large a directory or a file is. If an image of that could take more than most, it looks no further,
// and it is not the whole.
func measureSource(ctx context.Context, path string, most layers.Usage) (u layers.Usage, whole bool, err error) {
	errMore := errors.New("there is more")
	seen := map[uint64]bool{} // inodes with several names
	err = asUser(ctx, func() error {
		return hosttree.WalkMount(ctx, path, func(_ int, _ string, st *unix.Statx_t) error {
			if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
				if seen[st.Ino] {
					return nil
				}
				seen[st.Ino] = true
			}
			u.Inodes++
			if st.Mode&unix.S_IFMT == unix.S_IFREG {
				u.Bytes += int64(st.Size)
			}
			if exceeds(layers.Usage{Bytes: u.Bytes + u.Inodes*imageInode, Inodes: u.Inodes}, most) {
				return errMore
			}
			return nil
		})
	})
	if errors.Is(err, errMore) {
		return u, false, nil
	}
	return u, err == nil, err
}

// fitsImported destroys a workspace that was just made if what was imported for it takes more than its limits:
// layers.ErrTooLarge. Its lock is held.
func (h *Home) fitsImported(ctx context.Context, w *catalog.Workspace) error {
	for range keptTries {
		kept, known, err := h.keptBy(ctx, w.ID, map[uint64]layers.Usage{})
		if err == nil && !known {
			continue // a layer was stored right then
		}
		if err == nil && !exceeds(kept, limitOf(*w.Quota)) {
			return nil
		}
		if err == nil {
			err = layers.ErrTooLarge
		}
		e := h.event(EventDestroyed, w.ID, w.Session, "", "what it was to be made from exceeds its limits")
		return errors.Join(err, h.destroyLocked(context.WithoutCancel(ctx), w.ID, e))
	}
	return nil
}

// toldOf is of how much of a source it is told how large it is.
var toldOf = layers.Usage{Inodes: 1 << 18}

// tooLarge is the error of an import that exceeds the limits of its workspace.
func (h *Home) tooLarge(ctx context.Context, w *catalog.Workspace, src source) error {
	path, has := src.label, ""
	if src.archive != nil {
		path = src.archive.path
	}
	if u, whole, err := measureSource(ctx, path, toldOf); err == nil {
		has = ", which has "
		if !whole {
			has += "more than "
		}
		has += usageText(u)
	}
	return fmt.Errorf("workspace %s: what is imported would take more than its limits, %s: %s%s: %w",
		w.ID, quotaText(*w.Quota), api.Quoted(src.label), has, unix.ENOSPC)
}

// usageText has an amount for a message.
func usageText(u layers.Usage) string {
	return fmt.Sprintf("%s in %d inodes", humanize.IBytes(uint64(u.Bytes)), u.Inodes)
}

// mostOfImport is what the import of a directory may take on which workspaces stand: the directory may grow meanwhile. 0 is
// no limit, as where one without limits stands on it.
func (h *Home) mostOfImport(layer string) (most layers.Usage) {
	var found bool
	for _, w := range h.catalog.Workspaces() {
		stack, err := h.catalog.Stack(w.Base)
		if err != nil || len(stack) == 0 || stack[len(stack)-1].ID != layer {
			continue
		}
		limit := mostFor(w)
		if !found {
			most, found = limit, true
			continue
		}
		most = layers.Usage{Bytes: looser(most.Bytes, limit.Bytes), Inodes: looser(most.Inodes, limit.Inodes)}
	}
	return most
}

// looser is the larger of two limits, of which 0 is none.
func looser(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}
