package sandbox

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/catalog"
	"snapfs/sandbox/internal/imagefile"
	"snapfs/sandbox/internal/layerstore"
	"snapfs/sandbox/internal/part"
	"snapfs/sandbox/internal/tarlayer"
	"snapfs/squashfs"
)

// A container image has one layer for each layer of the image that the workspace was made from, and one for each snapshot
// since. Their tar files are made anew: a layer of the image keeps its diff-id if it was written as we write.

// mostImageLayers is how many layers an image gets: engines take 127. The oldest snapshots share one.
const mostImageLayers = 120

// validArchiveExport looks at a request for a tar file or a container image.
func validArchiveExport(r ExportRequest) error {
	image := r.Format == api.FormatDocker || r.Format == api.FormatOCI
	switch {
	case !image && r.Format != api.FormatTar:
		return fmt.Errorf("%w: format %s: squashfs, tar, docker or oci", ErrInvalid, api.Quoted(r.Format))
	case r.Layer:
		return fmt.Errorf("%w: a layer is exported as squashfs only", ErrInvalid)
	case !slices.Contains([]string{imagefile.None, imagefile.Gzip, imagefile.Zstd}, r.Compression):
		return fmt.Errorf("%w: compression %s for format %s: none, zstd or gzip", ErrInvalid, api.Quoted(r.Compression), r.Format)
	case r.Compression == imagefile.Gzip && r.Level > 9:
		return fmt.Errorf("%w: compression %s has no level %d", ErrInvalid, r.Compression, r.Level)
	case image && !r.All() && (r.Image == nil || !r.Image.Flatten):
		return fmt.Errorf("%w: a part of a tree can only be one layer: --flatten, in Go Flatten", ErrInvalid)
	}
	if r.Image == nil {
		return nil
	}
	for _, e := range r.Image.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			return fmt.Errorf("%w: variable %s: it is NAME=VALUE", ErrInvalid, api.Quoted(e))
		}
	}
	return imagefile.ValidTag(r.Image.Tag)
}

// exportArchive is Export for formats that are tar files. The tree is that of the snapshot.
func (h *Home) exportArchive(
	ctx context.Context, s *catalog.Snapshot, t *tree, path string, r ExportRequest,
) (ExportResult, error) {
	e := &archiveExport{h: h, ctx: ctx, snapshot: s, tree: t, req: r}
	fill := e.tar
	if r.Format != api.FormatTar {
		fill = e.image
		if r.Image == nil {
			e.req.Image = &api.ImageOptions{}
		}
		if err := e.plan(); err != nil {
			return ExportResult{}, classify(err)
		}
		defer e.close()
	}
	if e.groups == nil {
		var counted func()
		e.req.Progress, counted = total(ctx, t.lowers, r.Part, r.Progress)
		defer counted()
	}
	var result ExportResult
	var err error
	if r.Writer != nil {
		result, err = h.streamImage(ctx, r.Writer, fill)
	} else {
		result, err = writeImageFile(ctx, path, fill)
	}
	result.Lost = e.lost.Sockets + e.lost.Xattrs
	result.Image = e.result
	return result, classify(err)
}

// archiveExport is one export of a tar file or a container image.
type archiveExport struct {
	h        *Home
	ctx      context.Context
	snapshot *catalog.Snapshot
	tree     *tree
	req      ExportRequest

	groups []*layerGroup // of an image that is not flattened, the lowest first
	config imagefile.Config
	result *api.ExportedImage

	lost         tarlayer.Lost
	files, bytes int64 // written
}

// layerGroup is layers of a stack that become one of an image.
type layerGroup struct {
	top, below string
	diffID     string // that it had as a layer of an image
	snapshot   *catalog.Snapshot
	stack      *layerstore.Stack // from top down
	above      int               // lowers of it, from the topmost on, that are the group
}

// close gives back what the groups have open.
func (e *archiveExport) close() {
	for _, g := range e.groups {
		if g.stack != nil {
			g.stack.Release()
			g.stack = nil
		}
	}
}

// plan finds the groups and opens them. Snapshots may be deleted, and their layers merged, meanwhile.
func (e *archiveExport) plan() error {
	const attempts = 10
	for try := 1; ; try++ {
		err := e.group()
		if err == nil && !e.req.Image.Flatten {
			err = e.open()
		} else if err == nil {
			e.groups = nil
		}
		if err == nil || !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) || try == attempts {
			return err
		}
		e.close()
	}
}

// group divides the stack of the snapshot.
func (e *archiveExport) group() error {
	e.groups = nil
	e.config = imagefile.Config{OS: "linux", Architecture: runtime.GOARCH}
	if e.snapshot.Top == "" {
		return nil
	}
	stack, err := e.h.catalog.Stack(e.snapshot.Top)
	if err != nil {
		return err
	}
	base := 0
	var open *layerGroup
	for _, l := range slices.Backward(stack) {
		if l.Image != nil { // an empty one
			if e.config, err = imagefile.DecodeConfig(l.Image.Config); err != nil {
				return err
			}
			continue
		}
		if open == nil {
			open = &layerGroup{below: l.Parent}
			e.groups = append(e.groups, open)
		}
		open.top = l.ID
		if l.Chain != "" {
			open.diffID = l.DiffID
			base = len(e.groups)
			open = nil
		} else if on := e.h.catalog.SnapshotsOn(l.ID); len(on) > 0 {
			open.snapshot = on[0]
			open = nil
		}
	}
	if open != nil {
		open.snapshot = e.snapshot
	}
	if n := len(e.groups) - mostImageLayers; n > 0 {
		if n++; base+n > len(e.groups) {
			return fmt.Errorf("%w: the image would have %d layers: make it of one (--flatten, in Go Flatten)", ErrInvalid,
				len(e.groups))
		}
		e.groups[base+n-1].below = e.groups[base].below
		e.groups = slices.Delete(e.groups, base, base+n-1)
	}
	return nil
}

// open opens the stacks of the groups.
func (e *archiveExport) open() error {
	for _, g := range e.groups {
		var err error
		if g.stack, err = e.h.cache.OpenOver(e.ctx, g.top, g.below); err != nil {
			return err
		}
		if g.above = g.stack.Above(g.below); g.above < 0 {
			return fmt.Errorf("%w: layers of the snapshot are being merged", ErrConflict)
		}
	}
	return nil
}

// write writes one tar file.
func (e *archiveExport) write(to io.Writer, src squashfs.Source, image bool) error {
	lost, err := tarlayer.Write(e.ctx, to, src, tarlayer.WriteOptions{Image: image, Progress: func(bytes int64) {
		e.files, e.bytes = e.files+1, e.bytes+bytes
		if e.req.Progress != nil {
			e.req.Progress(Progress{Stage: "export", Files: e.files, Bytes: e.bytes, Total: -1})
		}
	}})
	e.lost.Sockets += lost.Sockets
	e.lost.Xattrs += lost.Xattrs
	if c, ok := src.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return err
}

// whole is the snapshot's tree, or the part of it that is wanted.
func (e *archiveExport) whole() (squashfs.Source, error) {
	filter, err := filterOf(e.req.Part)
	if err != nil {
		return nil, err
	}
	src, err := layers.Merged(e.tree.lowers)
	if err != nil {
		return nil, err
	}
	return part.Of(src, filter), nil
}

// tar writes the tree as a tar file.
func (e *archiveExport) tar(f *os.File) error {
	src, err := e.whole()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 256<<10)
	to, finish, err := imagefile.Compress(out, e.req.Compression, e.req.Level)
	if err != nil {
		return err
	}
	if err := e.write(to, src, false); err != nil {
		return err
	}
	return errors.Join(finish(), out.Flush())
}

// image writes the snapshot as a container image.
func (e *archiveExport) image(f *os.File) error {
	w := imagefile.NewWriter(f, e.req.Compression, e.req.Level)
	e.result = &api.ExportedImage{Layers: []api.ExportedLayer{}}
	if e.groups == nil {
		src, err := e.whole()
		if err != nil {
			return err
		}
		if err := e.layer(w, src, &layerGroup{snapshot: e.snapshot}); err != nil {
			return err
		}
	}
	for _, g := range e.groups {
		src, err := layers.Unfold(g.stack.Lowers(), g.above)
		if err != nil {
			return err
		}
		if err := e.layer(w, src, g); err != nil {
			return err
		}
	}
	e.configure()
	id, err := w.Finish(e.req.Format == api.FormatDocker, e.config, e.snapshot.CreatedAt.UTC(), e.req.Image.Tag)
	e.result.ID = id.String()
	return err
}

// layer writes one layer.
func (e *archiveExport) layer(w *imagefile.Writer, src squashfs.Source, g *layerGroup) error {
	by, id := "snapfs: layer of the base image", ""
	if g.snapshot != nil {
		by, id = "snapfs: snapshot "+cmp.Or(g.snapshot.Name, g.snapshot.ID), g.snapshot.ID
	}
	l, err := w.Layer(by, func(to io.Writer) error { return e.write(to, src, true) })
	if err != nil {
		return err
	}
	e.result.Layers = append(e.result.Layers, api.ExportedLayer{
		DiffID: l.DiffID.String(), Size: l.Size, Base: g.diffID, Snapshot: id,
	})
	return nil
}

// configure makes the configuration that the call asks for.
func (e *archiveExport) configure() {
	o, c := e.req.Image, &e.config.Config
	if o.Entrypoint != nil {
		c.Entrypoint, c.Cmd = o.Entrypoint, nil
	}
	if o.Cmd != nil {
		c.Cmd = o.Cmd
	}
	c.WorkingDir, c.User = cmp.Or(o.Workdir, c.WorkingDir), cmp.Or(o.User, c.User)
	for _, v := range o.Env {
		name, _, _ := strings.Cut(v, "=")
		at := slices.IndexFunc(c.Env, func(had string) bool { return strings.HasPrefix(had, name+"=") })
		if at < 0 {
			c.Env = append(c.Env, v)
		} else {
			c.Env[at] = v
		}
	}
	for name, value := range o.Labels {
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[name] = value
	}
}
