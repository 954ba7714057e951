package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"snapfs/chunkstore"
	"snapfs/layers"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/imagefile"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/tarlayer"
	"snapfs/sandbox/internal/uppers"
)

// Each layer of an image is unpacked into an upper of its own, and becomes a sealed layer, which is stored as every other.
// On top comes an empty layer, whose record has the image's configuration. A layer that the home has already, by its
// chain id, is not unpacked again; but it is read and its digests are compared: nobody gets at a layer who only knows its
// digest.
//
// All records are written by one transaction in the end. Until then the uppers are in the trash.

// What an image may become. Entries take an inode of the host each; bytes of holes take time.
const (
	imageEntries = 16 << 20
	imageBytes   = 256 << 30 // and so many times the archive's size:
	imageRatio   = 1024
)

// stageUnpack is the stage of Progress in which layers of an image are read.
const stageUnpack = "unpack"

// errBelowGone says that layers that were found are gone, with the last workspace of the image.
var errBelowGone = errors.New("layers of the image have just been deleted")

// importArchive makes a workspace from an archive. The caller holds the lock of its name.
func (h *Home) importArchive(
	ctx context.Context, w *catalog.Workspace, a *archive, progress func(Progress), created Event,
) error {
	const attempts = 3
	for try := 1; ; try++ {
		err := h.importArchiveOnce(ctx, w, a, progress, created)
		if !errors.Is(err, errBelowGone) || try == attempts {
			return classify(err)
		}
	}
}

func (h *Home) importArchiveOnce(
	ctx context.Context, w *catalog.Workspace, a *archive, progress func(Progress), created Event,
) (err error) {
	if err := h.roomInHome(ctx); err != nil {
		return err
	}
	im, err := h.openArchive(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, im.Close()) }()
	if len(im.Layers) > 0 && im.Layers[0].Chain != "" {
		// A session imports images that share their lowest layer one after the other, so that it is unpacked once. It does
		// not wait for others: which layers an archive says that it has is not looked at yet.
		unlock, err := h.ops.Lock(ctx, "image "+im.Layers[0].Chain+" of "+w.Session)
		if err != nil {
			return err
		}
		defer unlock()
	}
	leave, err := h.working.imports.Enter(ctx, w.Session, progress)
	if err != nil {
		return err
	}
	defer leave()
	i := &archiveImport{h: h, most: mostFor(w), progress: progress, total: im.Size()}
	i.limits = tarlayer.Limits{Entries: imageEntries, Bytes: imageBytes + imageRatio*i.total}
	err = i.run(ctx, im)
	i.close()
	if err == nil {
		err = i.record(ctx, w, created)
	}
	if err != nil && !errors.Is(err, chunkstore.ErrUnwritable) { // the disk may have the records all the same
		for _, l := range i.fresh {
			h.uppers.Discard(l.Upper)
		}
	}
	return err
}

// archiveImport is one import of an archive.
type archiveImport struct {
	h        *Home
	most     layers.Usage // what the layers made may take; 0 is no limit
	taken    layers.Usage // what those take that are made
	progress func(Progress)
	total    int64 // bytes of the archive's layers
	files    int64
	read     int64
	limits   tarlayer.Limits

	base  string            // the topmost layer that the home had; "" if there is none
	stack *layerstore.Stack // from there down; nil: not opened yet
	fresh []*catalog.Layer  // those made, the lowest first
	open  []*layers.Lower   // the same
}

// close closes what layers were looked at.
func (i *archiveImport) close() {
	for _, l := range i.open {
		if err := l.Close(); err != nil {
			i.h.log.Warn("closing a layer of an image", "error", err)
		}
	}
	i.open = nil
	if i.stack != nil {
		i.stack.Release()
		i.stack = nil
	}
}

// top is the topmost layer until now.
func (i *archiveImport) top() string {
	if n := len(i.fresh); n > 0 {
		return i.fresh[n-1].ID
	}
	return i.base
}

// tell reports how far the import is.
func (i *archiveImport) tell() {
	if i.progress != nil {
		i.progress(Progress{Stage: stageUnpack, Files: i.files, Bytes: i.read, Total: i.total})
	}
}

// run makes the layers that the home does not have.
func (i *archiveImport) run(ctx context.Context, im *imagefile.Image) error {
	for _, l := range im.Layers {
		if err := i.layer(ctx, l); err != nil {
			return err
		}
	}
	if im.ID.Hex == "" { // a tar file
		return nil
	}
	if len(i.fresh) == 0 {
		if l := i.h.catalog.ImageLayer(im.ID.String(), i.base); l != nil {
			i.base = l.ID
			return nil
		}
	}
	config, err := im.Config.Encode()
	if err != nil {
		return err
	}
	lowers, err := i.lowers(ctx)
	if err != nil {
		return err
	}
	record := catalog.Layer{Image: &catalog.Image{ID: im.ID.String(), Config: config}}
	return i.make(ctx, record, lowers, func(*layers.Overlay) error { return nil })
}

// layer makes one layer, or finds it.
func (i *archiveImport) layer(ctx context.Context, l *imagefile.Layer) error {
	count := func(n int64) {
		i.read += n
		i.tell()
	}
	if l.Chain != "" && len(i.fresh) == 0 {
		if known := i.h.catalog.ChainLayer(l.Chain, i.base); known != nil {
			i.base = known.ID
			return l.Read(ctx, count, func(io.Reader) error { return nil })
		}
	}
	lowers, err := i.lowers(ctx)
	if err != nil {
		return err
	}
	opts := tarlayer.Options{Whiteouts: l.Chain != "", Limits: &i.limits, Progress: func() {
		i.files++
		i.tell()
	}}
	if len(lowers) > 0 {
		opts.Below = func() (*layers.Tree, func(), error) { return layers.OpenTree(lowers) }
	}
	record := catalog.Layer{DiffID: l.DiffID.String(), Chain: l.Chain}
	if l.Chain == "" {
		record.DiffID = ""
	}
	return i.make(ctx, record, nil, func(o *layers.Overlay) error {
		return l.Read(ctx, count, func(r io.Reader) error { return tarlayer.Unpack(ctx, r, o, opts) })
	})
}

// lowers are all layers until now, topmost first.
func (i *archiveImport) lowers(ctx context.Context) ([]*layers.Lower, error) {
	if i.stack == nil && i.base != "" {
		var err error
		if i.stack, err = i.h.cache.Open(ctx, i.base); errors.Is(err, ErrNotFound) {
			return nil, errBelowGone
		} else if err != nil {
			return nil, err
		}
	}
	all := slices.Clone(i.open)
	slices.Reverse(all)
	if i.stack != nil {
		all = append(all, i.stack.Lowers()...)
	}
	return all, nil
}

// make makes a layer: fill writes it in an overlay over the lowers given.
func (i *archiveImport) make(
	ctx context.Context, record catalog.Layer, over []*layers.Lower, fill func(o *layers.Overlay) error,
) error {
	h := i.h
	upper, err := h.uppers.CreateDurable(ctx)
	if err != nil {
		return err
	}
	err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		ch.PutTrash = append(ch.PutTrash, upper)
		return nil
	})
	if err != nil {
		return errors.Join(err, h.removeUnnamed(upper, err))
	}
	record.ID, record.Parent, record.State, record.Upper = h.catalog.NewID(), i.top(), Sealed, upper
	room := accountFor(i.most, i.taken)
	o, err := layers.New(h.uppers.Path(upper), h.uppers.Work(upper), over, layers.Options{
		InoBase: uppers.InoBase(upper), WideIno: h.uppers.WideIno, Reserve: h.reserve, Account: room,
	})
	if err == nil {
		err = errors.Join(fill(o), o.Close())
	}
	if room != nil {
		used, _ := room.Used()
		i.taken = layers.Usage{Bytes: i.taken.Bytes + used.Bytes, Inodes: i.taken.Inodes + used.Inodes}
		if err != nil && room.Refused() {
			err = fmt.Errorf("%w: %w", layers.ErrTooLarge, err)
		}
	}
	var low *layers.Lower
	if err == nil {
		h.uppers.Leave(upper)
		low, err = layers.OpenSealed(record.ID, h.uppers.Path(upper), uppers.InoBase(upper), h.uppers.WideIno)
	}
	if err != nil {
		h.uppers.Discard(upper)
		return err
	}
	h.points.At("layer of an image unpacked")
	i.fresh, i.open = append(i.fresh, &record), append(i.open, low)
	return nil
}

// record writes the records of the layers and of the workspace on them.
func (i *archiveImport) record(ctx context.Context, w *catalog.Workspace, created Event) error {
	h := i.h
	if len(i.fresh) > 0 {
		if err := h.uppers.SyncAll(); err != nil {
			return fmt.Errorf("writing the layers of the image: %w", err)
		}
	}
	w.Base = i.top()
	upper, err := h.upperOver(ctx, w.Base)
	if err != nil {
		return err
	}
	w.Upper = upper
	err = h.catalog.Put(ctx, true, func(ch *catalog.Change) error {
		if i.base != "" && h.catalog.Layer(i.base) == nil {
			return errBelowGone
		}
		for _, l := range i.fresh {
			ch.DelTrash = append(ch.DelTrash, l.Upper)
			ch.PutLayers = append(ch.PutLayers, l)
		}
		ch.PutWorkspaces = append(ch.PutWorkspaces, w)
		ch.Events = append(ch.Events, created)
		return nil
	})
	if err != nil {
		return errors.Join(err, h.removeUnnamed(upper, err))
	}
	for _, l := range i.fresh {
		h.storer.Add(l.ID)
	}
	return nil
}
