package sandbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/patient"
	"snapfs/sandbox/internal/peer"
	"snapfs/squashfs"
)

// loader stores a base image and commits it together with the records that fn writes. layers.ErrTooLarge: it takes more than
// most, in which 0 is no bound.
type loader func(
	ctx context.Context, most layers.Usage, progress func(files, bytes int64),
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) error

// source is what a workspace is created from.
type source struct {
	label    string
	snapshot *catalog.Snapshot // nil: none
	load     loader            // nil: nothing is to be stored
	foreign  bool
	dir      bool     // it is a directory
	archive  *archive // nil: it is none
}

// findSource decides what a source is: anything with a slash is a path if it exists, everything else names a snapshot.
func (h *Home) findSource(ctx context.Context, r CreateRequest) (source, error) {
	a, ref, p := r.Access, r.Source, r.Part
	if kind, rest, ok := api.SplitImage(ref); ok && strings.HasPrefix(rest, "/") {
		if !p.All() {
			return source{}, fmt.Errorf("%w: an image is taken as a whole", ErrInvalid)
		}
		return h.archiveSource(ctx, kind, rest, r.Platform)
	}
	if r.Platform != "" {
		return source{}, fmt.Errorf("%w: a platform is chosen of a container image", ErrInvalid)
	}
	if !p.All() && !strings.HasPrefix(ref, "/") {
		return source{}, fmt.Errorf("%w: only of a directory can a part be taken: export a part of the snapshot first, "+
			"and create from that", ErrInvalid)
	}
	if ref == "" {
		return source{}, nil
	}
	if strings.HasPrefix(ref, "/") {
		src, err := patiently(ctx, h, ref, func() (source, error) {
			src, err := h.pathSource(ref, p)
			if err != nil {
				return src, err
			}
			return h.backupSource(src, r.Expired)
		})
		src.foreign = src.foreign || peer.From(ctx) != nil
		if _, _, ok := api.SplitRef(ref); !ok || !errors.Is(err, ErrNotFound) {
			return src, err
		}
	}
	s, err := h.useSnapshot(ctx, a, ref, "create from snapshot")
	if errors.Is(err, ErrNotFound) && h.catalog.Workspace(ref) != nil {
		return source{}, fmt.Errorf("%w: %s is a workspace, no snapshot: fork it, or take a snapshot of it",
			ErrNotFound, ref)
	}
	if errors.Is(err, ErrNotFound) {
		return source{}, fmt.Errorf("%w, and no such directory or image file (to the Go API, paths are absolute)", err)
	}
	if err == nil {
		err = h.restorable(s)
	}
	if err != nil {
		return source{}, err
	}
	return source{label: snapshotSource(s), snapshot: s, foreign: h.foreignSnapshot(s)}, nil
}

// forkSource begins the source of a fork, before the name of the workspace.
const forkSource = "workspace "

// snapshotSource is how a snapshot is called as a source.
func snapshotSource(s *catalog.Snapshot) string { return "snapshot " + s.ID }

// pathSource is a directory or an image file as a source.
func (h *Home) pathSource(path string, p Part) (source, error) {
	mounts, err := readMounts()
	if err != nil {
		return source{}, err
	}
	at, err := h.locate(path, mounts)
	switch {
	case err != nil:
		return source{}, err
	case at.inside != "":
		return source{}, fmt.Errorf("%w: %s is inside the mount of workspace %s: "+
			"fork it, or create from a snapshot of it", ErrInvalid, path, at.inside)
	case at.missing > 0:
		return source{}, fmt.Errorf("%w: %s does not exist", ErrNotFound, path)
	case below(at.path, h.dir):
		return source{}, fmt.Errorf("%w: %s is inside the home %s", ErrInvalid, path, h.dir)
	case at.info.Mode().IsRegular() && !p.All():
		return source{}, fmt.Errorf("%w: %s is no directory: an image is taken as a whole", ErrInvalid, path)
	case at.info.Mode().IsRegular():
		tar, err := isTarFile(at.path)
		if tar || err != nil {
			return source{label: at.path, archive: &archive{kind: tarFile, path: at.path}, foreign: true}, err
		}
		return source{label: at.path, load: h.imageLoader(at.path), foreign: true}, nil
	case !at.info.IsDir():
		return source{}, fmt.Errorf("%w: %s is neither a directory nor a file", ErrInvalid, path)
	case below(h.dir, at.path):
		return source{}, fmt.Errorf("%w: %s contains the home %s: choose a directory beside it",
			ErrInvalid, path, h.dir)
	}
	for point, ws := range h.mountpoints(mounts) {
		if below(point, at.path) {
			return source{}, fmt.Errorf("%w: workspace %s is mounted inside %s, at %s: unmount it first",
				ErrConflict, ws, path, point)
		}
	}
	foreign, err := foreignDir(at.path)
	return source{label: at.path, load: h.dirLoader(at.path, p), foreign: foreign, dir: true}, err
}

// dirLoader stores what p takes of a directory.
func (h *Home) dirLoader(path string, p Part) loader {
	return func(
		ctx context.Context, most layers.Usage, progress func(files, bytes int64),
		fn func(*chunkstore.Tx, chunkstore.Manifest) error,
	) error {
		filter, err := filterOf(p)
		if err != nil {
			return err
		}
		threads := userThreads(ctx)
		defer threads.Close()
		store := func(opts layers.StoreOptions) (chunkstore.Manifest, error) {
			opts.Progress, opts.Most, opts.Do, opts.Part = progress, most, doBy(threads), partOf(filter)
			return layers.StoreTree(ctx, h.store, path, opts, func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
				if err := foundAll(filter); err != nil {
					return err
				}
				return fn(tx, m)
			})
		}
		_, err = h.importNoting(h.newNotes(ctx, path, p), store)
		return h.tooManyLinks(userError(peer.From(ctx), err))
	}
}

// importNoting has store read a directory with what the last import of it has noted.
func (h *Home) importNoting(
	n *notes, store func(opts layers.StoreOptions) (chunkstore.Manifest, error),
) (m chunkstore.Manifest, err error) {
	most, err := layers.MaxLinks(h.uppers.Dir())
	if err != nil {
		return m, err
	}
	m, err = store(layers.StoreOptions{Home: h.number, MaxLinks: most, Seen: n.begin})
	n.end(err == nil)
	return m, err
}

// squashfsMagic begins every squashfs image, "hsqs" on disk.
const squashfsMagic = 0x73717368

// foreignBlocks holds the unpacked blocks of all images that workspaces are being made of.
var foreignBlocks = squashfs.NewCache(squashfs.DefaultCacheBytes)

// imageLoader stores the tree of an image file of any origin.
func (h *Home) imageLoader(path string) loader {
	return h.loaderOf(path, func(ctx context.Context) (*patient.File, error) { return h.openNamed(ctx, path) })
}

// loaderOf is imageLoader for a file that open opens.
func (h *Home) loaderOf(path string, open func(ctx context.Context) (*patient.File, error)) loader {
	return func(
		ctx context.Context, most layers.Usage, progress func(files, bytes int64),
		fn func(*chunkstore.Tx, chunkstore.Manifest) error,
	) (err error) {
		f, err := open(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		var magic [4]byte
		if _, err := f.ReadAt(magic[:], 0); errors.Is(err, ErrUnavailable) {
			return err
		} else if err != nil || binary.LittleEndian.Uint32(magic[:]) != squashfsMagic {
			return fmt.Errorf("%w: %s is not a squashfs image", ErrInvalid, path)
		}
		im, err := squashfs.Open(f, f.Size(), squashfs.Options{Cache: foreignBlocks})
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if err := im.Complete(); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		ours, err := h.uppers.Ours(ctx)
		if err != nil {
			return err
		}
		links, err := layers.MaxLinks(h.uppers.Dir())
		if err != nil {
			return err
		}
		opts := layers.StoreOptions{Progress: progress, Most: most, Home: h.number, Ours: ours, MaxLinks: links}
		if _, err = layers.StoreImage(ctx, h.store, im, opts, fn); err != nil {
			return h.tooManyLinks(fmt.Errorf("storing %s: %w", path, err))
		}
		return nil
	}
}

// tooManyLinks says of an error that a file has more names than the home's file system has room for: nobody could
// change or remove it, because all its names are copied up together.
func (h *Home) tooManyLinks(err error) error {
	if !errors.Is(err, squashfs.ErrLinks) {
		return err
	}
	return fmt.Errorf("%w: %w: the file system of the home %s has room for no more", ErrInvalid, err, h.dir)
}

// loadWorkspace stores a base image and records it and the new workspace in the same transaction. The caller holds the
// lock of the name.
func (h *Home) loadWorkspace(
	ctx context.Context, w *catalog.Workspace, src source, progress func(Progress), created Event,
) error {
	leave, err := h.working.imports.Enter(ctx, w.Session, progress)
	if err != nil {
		return err
	}
	defer leave()
	upper, err := h.uppers.CreateDurable(ctx)
	if err != nil {
		return err
	}
	base := catalog.Layer{ID: h.catalog.NewID()}
	if src.dir {
		base.Imported = src.label
	}
	w.Upper, w.Base = upper, base.ID
	var ch catalog.Change
	err = src.load(ctx, mostFor(w), counter(progress, "store"), func(tx *chunkstore.Tx, m chunkstore.Manifest) error {
		stored := base.Stored(m)
		ch = catalog.Change{
			PutLayers: []*catalog.Layer{&stored}, PutWorkspaces: []*catalog.Workspace{w}, Events: []Event{created},
		}
		return h.catalog.Write(tx, &ch)
	})
	if err != nil {
		return errors.Join(classify(err), h.uppers.Remove(upper))
	}
	h.catalog.Committed(&ch)
	return nil
}

// counter turns a package's progress into that of the API.
func counter(progress func(Progress), stage string) func(files, bytes int64) {
	if progress == nil {
		return nil
	}
	return func(files, bytes int64) { progress(Progress{Stage: stage, Files: files, Bytes: bytes, Total: -1}) }
}
