package layers

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore"
	"snapfs/squashfs"
)

// StoreOptions are for Store, StoreTree, StoreImage and Capture.
type StoreOptions struct {
	NoSync   bool
	Progress func(files, bytes int64)
	Home     uint64 // whose inode numbers images have, see squashfs.StoreOptions; 0 = nobody's
	// Ours tells StoreImage whether this home has given out the numbers of a space, which are those that begin with the
	// same 32 bits, and will not do so again. nil = none.
	Ours func(space uint32) bool
	// MaxLinks is for StoreTree and StoreImage: how many names a file may have, else it is an error of class
	// squashfs.ErrLinks; 0 = any number.
	MaxLinks uint32
	// Do is for StoreTree: it runs what looks at the directory, with the rights that it needs. nil = with those of this
	// process. Several goroutines call it.
	Do func(fn func() error) error
	// Part is for StoreTree: it presents a part of the tree that it gets. nil = all of it.
	Part func(squashfs.Source) squashfs.Source
	// Most is how many bytes the image may add to the store, and how many inodes it may have; 0 is any number. More is
	// ErrTooLarge.
	Most Usage
	// Seen is for StoreTree and Capture: it gives what was noted of the directory with this device and inode number when it was
	// imported last. It is called again if the import begins anew. nil = all files are read, and nothing is noted.
	Seen func(dev, ino uint64) Seen

	// Scratch is for Capture: a directory on the file system of the upper, where copies of large files are made that share
	// their blocks with them, if the host can do that. "" = large files are read while they are written to.
	Scratch string
	// Since is for Capture: what the last capture of the upper has found, and Last the stack with its image on top. nil = the
	// image is of the whole upper. SeenSince is in place of Seen then; what it is told to note need not be kept.
	Since     *CaptureState
	Last      []*Lower
	SeenSince func(dev, ino uint64) Seen

	renumber bool
	written  func() error // called when the image is written, before it is committed; nil: nothing is to be done
}

// ErrTooLarge is the error of what would take more than it may; it is also unix.ENOSPC.
var ErrTooLarge = fmt.Errorf("it takes more than it may: %w", unix.ENOSPC)

// tooLarge makes ErrTooLarge of what the store, or the image, says of it.
func tooLarge(err error) error {
	if errors.Is(err, chunkstore.ErrTooMuch) || errors.Is(err, squashfs.ErrInodes) {
		return ErrTooLarge
	}
	return err
}

// Store stores a sealed layer as an image: writes its store form into the chunk store, predicting every file and the
// metadata tables from the layers below, and commits together with the records fn writes.
func Store(
	ctx context.Context, s *chunkstore.Store, layer *Lower, below []*Lower, opts StoreOptions,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	v, err := openView(append([]*Lower{layer}, below...))
	if err != nil {
		return chunkstore.Manifest{}, err
	}
	defer func() { _ = v.Close() }() // it cannot fail
	k := &sink{tables: map[string]chunkstore.Range{}}
	for _, l := range v.o.stack[1:] {
		if err := k.predictTables(l); err != nil {
			return chunkstore.Manifest{}, fmt.Errorf("store: %w", err)
		}
		if len(k.tables) > 0 {
			break
		}
	}
	src := &delta{view: v, onFile: k.predict}
	return storeSource(ctx, s, src, k, opts, true, fn)
}

// store writes a source's image into the chunk store.
func storeSource(
	ctx context.Context, s *chunkstore.Store, src squashfs.Source, k *sink, opts StoreOptions, background bool,
	fn func(tx *chunkstore.Tx, m chunkstore.Manifest) error,
) (chunkstore.Manifest, error) {
	in, err := s.NewIngest(ctx, chunkstore.IngestOptions{
		Kind: chunkstore.KindImage, HeaderSize: squashfs.HeaderSize, Background: background, NoSync: opts.NoSync,
		Most: opts.Most.Bytes,
	})
	if err != nil {
		return chunkstore.Manifest{}, err
	}
	defer in.Abort()
	k.Ingest = in
	in.RecallMany(k.known)
	to := squashfs.StoreOptions{Progress: opts.Progress, Home: opts.Home, Renumber: opts.renumber, MaxLinks: opts.MaxLinks, Share: true}
	to.MaxInodes = uint32(min(opts.Most.Inodes, math.MaxUint32))
	if _, err := squashfs.WriteStore(ctx, k, src, to); err != nil {
		return chunkstore.Manifest{}, fmt.Errorf("store: %w", tooLarge(err))
	}
	if opts.written != nil {
		if err := opts.written(); err != nil {
			return chunkstore.Manifest{}, errors.Join(err, in.Keep()) // what was read need not be read again
		}
	}
	m, err := in.Commit(ctx, fn)
	return m, tooLarge(err)
}

// sink turns the cuts of an image into hints for the chunk store.
type sink struct {
	*chunkstore.Ingest
	tables map[string]chunkstore.Range // previous versions of metadata tables

	// Of the file opened last, which is the one that is cut next.
	prev    chunkstore.Range // Len 0: nothing is known
	inPlace bool             // it is partial

	size int64 // of what was cut last

	known int // files of which the store is expected to have the contents
}

// predictTables takes a layer's tables for previous versions, where they are longer than what is known.
func (k *sink) predictTables(l *layer) error {
	im := l.lower.image
	if im == nil || im.manifest == 0 {
		return nil
	}
	tables, err := im.im.Tables()
	if err != nil {
		return fmt.Errorf("tables of layer %s: %w", l.lower.key, err)
	}
	for name, t := range tables {
		if t.Len > k.tables[name].Len {
			k.tables[name] = chunkstore.Range{Manifest: im.manifest, Off: t.Off, Len: t.Len}
		}
	}
	return nil
}

// predict notes where the previous version lies of the file that is written next; nil if there is none.
func (k *sink) predict(prev *part, inPlace bool) {
	k.prev, k.inPlace = chunkstore.Range{}, false
	if prev == nil {
		return
	}
	im := prev.imageStore()
	if im == nil || im.manifest == 0 {
		return
	}
	n, err := im.inode(prev)
	if err != nil {
		return // a prediction less; reading the layer reports the damage
	}
	if off, length, ok := n.Data(); ok && length > 0 {
		k.prev, k.inPlace = chunkstore.Range{Manifest: im.manifest, Off: off, Len: length}, inPlace
	}
}

// Cut implements squashfs.Sink.
func (k *sink) Cut(c squashfs.Cut) error {
	h := chunkstore.Hint{Path: c.Path, Size: c.Size}
	k.size = c.Size
	if c.Meta {
		if r := k.tables[c.Table]; r.Len > 0 {
			h.Prev = []chunkstore.Range{r}
		}
	} else if k.prev.Len > 0 {
		h.Prev, h.InPlace = []chunkstore.Range{k.prev}, k.inPlace
		k.prev = chunkstore.Range{}
	}
	return k.Hint(h)
}
