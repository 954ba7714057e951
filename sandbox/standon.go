package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/internal/hosttree"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/peer"
)

// A workspace of a large directory stands on the directory itself at first. The layer of it is in state Importing: its
// Lower shows the directory, with copies of what was read in the place of what may change (layers.OpenSource), and the
// storer imports it. Then the image takes its place, as it takes that of a sealed directory.

// A directory with no more than this is imported before its workspace is there: that takes no longer than to make one.
const (
	fewFiles = 1000
	fewBytes = 8 << 20
)

// localTypes are the file systems that answer at once, whatever another machine or process does.
var localTypes = map[int64]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
}

// mayStandOn reports whether a workspace may stand on a source until that is imported. If in doubt it is imported first,
// which tells what is wrong with it. What may not be read is an error, as far as it is met.
func (h *Home) mayStandOn(ctx context.Context, src source) (bool, error) {
	if !src.dir || !utf8.ValidString(src.label) { // a record could not name it
		return false, nil
	}
	few := true
	err := asUser(ctx, func() error {
		var fs unix.Statfs_t
		if err := unix.Statfs(src.label, &fs); err != nil || !localTypes[int64(fs.Type)] {
			return err
		}
		few = false
		return h.hasFew(ctx, src.label, &few)
	})
	if denied(err) {
		return false, err
	}
	return err == nil && !few, nil
}

// hasFew finds out whether little is in a directory. It looks at no more of that than it takes to tell.
func (h *Home) hasFew(ctx context.Context, path string, few *bool) error {
	files, bytes := 0, int64(0)
	errMany := errors.New("there is much")
	err := hosttree.WalkMount(ctx, path, func(dirfd int, name string, st *unix.Statx_t) error {
		files++
		may := uint32(unix.R_OK)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			bytes += int64(st.Size)
		case unix.S_IFDIR:
			may |= unix.X_OK
		default:
			may = 0 // only its attributes are read
		}
		if err := unix.Faccessat2(dirfd, name, may, unix.AT_EACCESS|unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.EACCES) {
			return pathError(nameBelow(dirfd, name), err)
		}
		if files > h.few || bytes > fewBytes {
			return errMany
		}
		return nil
	})
	*few = err == nil
	if errors.Is(err, errMany) {
		return nil
	}
	return err
}

// denied reports whether an error is about rights.
func denied(err error) bool { return errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) }

// nameBelow is the path of a name in an open directory, as well as it can be told.
func nameBelow(dirfd int, name string) string {
	dir, err := os.Readlink(fmt.Sprint("/proc/self/fd/", dirfd))
	if err != nil || filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// standOn records a new workspace on a directory that is to be imported. The caller holds the lock of its name.
func (h *Home) standOn(ctx context.Context, w *catalog.Workspace, src source, created Event) (err error) {
	base := &catalog.Layer{
		ID: h.catalog.NewID(), State: Importing, Imported: src.label,
		Source: &catalog.Source{Path: src.label, By: peer.From(ctx), Session: w.Session},
	}
	if base.Upper, err = h.upperOver(ctx, base.ID); err != nil {
		return err
	}
	drop := func(err error) error { return errors.Join(err, h.removeUnnamed(base.Upper, err)) }
	of := *base.Source
	if err := h.answered(ctx, &of, func() error { return h.identify(&of) }, func() {}); err != nil {
		return drop(err)
	}
	base.Source.ID = of.ID
	low, err := h.openSource(ctx, base)
	if err != nil {
		return drop(err)
	}
	if w.Upper, err = h.upperOver(ctx, base.ID); err != nil {
		return drop(errors.Join(err, low.Close()))
	}
	w.Base = base.ID
	err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		ch.PutLayers = append(ch.PutLayers, base)
		ch.PutWorkspaces = append(ch.PutWorkspaces, w)
		ch.Events = append(ch.Events, created, h.event(EventImportStarted, w.ID, w.Session, "", src.label))
		return nil
	})
	if err != nil {
		return errors.Join(drop(errors.Join(err, low.Close())), h.removeUnnamed(w.Upper, err))
	}
	h.points.At("workspace stands on its source")
	h.cache.Release(h.cache.Add(base.ID, low, base.Upper))
	h.storer.Add(base.ID)
	return nil
}

// Import implements layerstore.Owner.
func (o storerOwner) Import(
	ctx context.Context, r *catalog.Layer, low *layers.Lower, tell layerstore.Telling, fn layerstore.Commit,
) (chunkstore.Manifest, error) {
	h, s := o.home, r.Source
	if s.By != nil {
		ctx = peer.With(ctx, s.By)
	}
	h.sources.running.Store(r.ID, low)
	defer h.sources.running.Delete(r.ID)
	if err := h.reopenSource(ctx, r, low); err != nil {
		return chunkstore.Manifest{}, fmt.Errorf("importing %s: %w", s.Path, err)
	}
	notes := h.newNotes(ctx, s.Path, Part{})
	most := h.mostOfImport(r.ID)
	m, err := h.importNoting(notes, func(opts layers.StoreOptions) (chunkstore.Manifest, error) {
		opts.Most = most
		opts.Progress, opts.Seen = tell.Progress, func(dev, ino uint64) layers.Seen {
			seen := notes.begin(dev, ino)
			if n := seen.Len(); n > 0 {
				tell.Expect(int64(n))
			}
			return seen
		}
		return layers.StoreSource(ctx, h.store, low, opts, fn)
	})
	if err == nil {
		return m, nil
	}
	err = fmt.Errorf("importing %s: %w", s.Path, h.tooManyLinks(userError(s.By, err)))
	if errors.Is(err, layers.ErrTooLarge) {
		err = fmt.Errorf("%w: it has grown beyond the limits of what stands on it, %s", err, quotaText(api.Quota{Size: most.Bytes, Inodes: most.Inodes}))
	}
	var unreadable *layers.Unreadable
	if errors.As(err, &unreadable) {
		err = fmt.Errorf("%w: make it readable, or remove it there; the import is tried again when the workspace is mounted, or "+
			"something waits for it", err)
	}
	return m, err
}

// importing is the layer of a stack that is still being imported; nil if there is none.
func (h *Home) importing(top string) *catalog.Layer {
	pending, err := h.catalog.SealedOf(top)
	if n := len(pending); err == nil && n > 0 && pending[n-1].Source != nil {
		return pending[n-1]
	}
	return nil
}

// importOf describes the import on which a stack stands; nil if there is none.
func (h *Home) importOf(top string) *Import {
	l := h.importing(top)
	if l == nil {
		return nil
	}
	i := h.storer.Importing(l.ID)
	return &Import{
		Directory: l.Source.Path, Running: i.Running, Files: i.Files, Bytes: i.Bytes, Total: i.Total, Problem: i.Problem,
		Changed: h.sources.count(l.ID), Missing: h.sources.missing(l.ID),
	}
}

// waitImported waits until the directory on which a stack stands is in the store, for what needs all of it. An error of
// the import ends it.
func (h *Home) waitImported(ctx context.Context, top string, progress func(Progress)) error {
	l := h.importing(top)
	if l == nil {
		return nil
	}
	if err := h.storer.Wait(ctx, l.ID, progress); err != nil {
		return fmt.Errorf("%s must be in the store for that: %w", api.Quoted(l.Source.Path), err)
	}
	return nil
}

// apartWait is how long a mount waits for imports that it must not be near.
const apartWait = 30 * time.Second

// apartFromImports waits until no directory of the same user is being imported that a mount would cover, or that is in it
// or contains it: this process must not come into its own mounts when it reads the directory. It does not wait for ever,
// nor for an import that has failed. Those of others bar nobody: their threads may not enter the mount of another user.
func (h *Home) apartFromImports(ctx context.Context, at location) error {
	if !at.view.own() && !at.view.chroot {
		return nil
	}
	by := peer.From(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, apartWait, errApart)
	defer cancel()
	for _, l := range h.catalog.Layers() {
		if l.Source == nil || !below(at.path, l.Source.Path) && !below(l.Source.Path, at.path) {
			continue
		}
		if !sameUser(by, l.Source.By) {
			continue
		}
		err := h.waitImported(ctx, l.ID, nil)
		if err != nil && errors.Is(context.Cause(ctx), errApart) {
			err = fmt.Errorf("%w: %s %w: mount it elsewhere, or wait for the import", ErrUnavailable, api.Quoted(l.Source.Path), errApart)
		}
		if err != nil {
			return fmt.Errorf("a mount at %s: %w", at.path, err)
		}
	}
	return nil
}

// errApart ends the wait of apartFromImports.
var errApart = errors.New("is still being imported")

// sameUser reports whether two calls are made for one user.
func sameUser(a, b *peer.User) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.UID == b.UID
}
