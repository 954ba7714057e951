package imagefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/patient"
)

// Options say what is wanted of an archive.
type Options struct {
	Kind     string // api.DockerArchive, api.OCIArchive or api.OCILayout
	Path     string // absolute
	Ref      string // a tag, or @ and a digest; "": the only image there is
	Platform string // OS/ARCHITECTURE[/VARIANT]; "": that of this machine
	// Do runs what opens files, with the rights that it needs. nil = with those of this process.
	Do func(fn func() error) error
	// Wait gives up what hangs. nil = nothing is given up.
	Wait patient.Wait
}

// open opens the archive itself.
func (o *Options) open() (*patient.File, error) {
	if o.Do == nil {
		o.Do = func(fn func() error) error { return fn() }
	}
	if o.Wait == nil {
		o.Wait = patient.Forever
	}
	return patient.Open(o.Wait, func() (f *os.File, err error) {
		err = o.Do(func() (err error) {
			f, err = hosttree.Open(o.Path, unix.O_RDONLY|unix.O_NONBLOCK)
			return err
		})
		return f, err
	})
}

// Image is one image of an archive, which stays open until Close.
type Image struct {
	ID     v1.Hash // digest of the configuration
	Config Config
	Layers []*Layer // the lowest first
	blobs  blobs
}

// Bounds of what an archive may have.
const (
	maxDocument = 4 << 20 // bytes of a manifest, an index or a configuration
	maxLayers   = 512
)

// Open finds an image in an archive. Errors are api.ErrInvalid if it is no such archive, api.ErrNotFound if it does not
// have the image, and api.ErrCorrupt if something is missing in it or not what its digest says.
func Open(o Options) (_ *Image, err error) {
	want, err := parsePlatform(o.Platform)
	if err != nil {
		return nil, err
	}
	b, err := openBlobs(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	im := &Image{blobs: b}
	if o.Kind == api.DockerArchive {
		err = im.openDocker(o.Ref)
	} else {
		err = im.openOCI(o.Ref, want)
	}
	if err == nil && o.Platform != "" && !want.matches(im.Config.platform()) {
		err = fmt.Errorf("%w: the image is for %s, not for %s", api.ErrNotFound, im.Config.platform(), o.Platform)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Path, err)
	}
	return im, nil
}

// Close closes the archive.
func (im *Image) Close() error { return im.blobs.Close() }

// Size is how many bytes the layers take in the archive.
func (im *Image) Size() (size int64) {
	for _, l := range im.Layers {
		size += l.blob.size
	}
	return size
}

// openBlobs opens an archive, which must be of the kind that is wanted.
func openBlobs(o Options) (blobs, error) {
	f, err := o.open()
	if err != nil {
		return nil, err
	}
	fi := f.Info()
	var b blobs
	switch dir := o.Kind == api.OCILayout; {
	case dir && fi.IsDir():
		b = &dirBlobs{dir: f, do: o.Do}
	case dir && fi.Mode().IsRegular():
		err = fmt.Errorf("%w: %s is a file: a layout in a file is %s:FILE", api.ErrInvalid, o.Path, api.OCIArchive)
	case fi.IsDir():
		err = fmt.Errorf("%w: %s is a directory: an OCI layout is %s:DIR", api.ErrInvalid, o.Path, api.OCILayout)
	case !fi.Mode().IsRegular():
		err = fmt.Errorf("%w: %s is neither a file nor a directory", api.ErrInvalid, o.Path)
	default:
		if b, err = indexTar(f, fi.Size()); err != nil {
			err = fmt.Errorf("%s: %w", o.Path, err)
		}
	}
	if err == nil {
		err = fits(o, b)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return b, nil
}

// fits refuses an archive that is of another kind.
func fits(o Options, b blobs) error {
	docker, oci := b.has(dockerManifest), b.has(ociIndex)
	switch {
	case o.Kind == api.DockerArchive && docker, o.Kind != api.DockerArchive && oci:
		return nil
	case o.Kind == api.DockerArchive && oci:
		return fmt.Errorf("%w: %s is an OCI archive: it is given as %s:FILE", api.ErrInvalid, o.Path, api.OCIArchive)
	case docker:
		return fmt.Errorf("%w: %s is a docker archive: it is given as %s:FILE", api.ErrInvalid, o.Path, api.DockerArchive)
	case o.Kind == api.DockerArchive:
		return fmt.Errorf("%w: %s is no docker archive: it has no %s", api.ErrInvalid, o.Path, dockerManifest)
	}
	return fmt.Errorf("%w: %s is no OCI layout: it has no %s", api.ErrInvalid, o.Path, ociIndex)
}

// Holds tells which kind of image archive an uncompressed tar file is; "" if it is none.
func Holds(f *patient.File, size int64) string {
	b, err := indexTar(f, size)
	if err != nil {
		return ""
	}
	if b.has(ociIndex) && b.has("oci-layout") {
		return api.OCIArchive
	}
	text, err := document(b, dockerManifest)
	var images []dockerImage
	if err == nil && json.Unmarshal(text, &images) == nil && len(images) > 0 && images[0].Config != "" {
		return api.DockerArchive
	}
	return ""
}

// document reads a small blob as a whole.
func document(b blobs, name string) ([]byte, error) {
	bl, err := b.find(name)
	if err != nil {
		return nil, err
	}
	if bl.size > maxDocument {
		return nil, fmt.Errorf("%w: %s has %d bytes, and %d are the most", api.ErrInvalid, api.Quoted(name), bl.size, maxDocument)
	}
	r, err := bl.open()
	if err != nil {
		return nil, err
	}
	text := make([]byte, bl.size)
	_, err = io.ReadFull(r, text)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("%w: reading %s: %w", api.ErrCorrupt, api.Quoted(name), err)
	}
	return text, nil
}

// parse reads a JSON document.
func parse(text []byte, name string, into any) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %s: %w", api.ErrCorrupt, api.Quoted(name), err)
	}
	return nil
}

// addLayers joins the blobs of layers with the diff-ids that the configuration tells.
func (im *Image) addLayers(diffIDs []v1.Hash, layers []*Layer) error {
	switch {
	case len(layers) != len(diffIDs):
		return fmt.Errorf("%w: the image has %d layers, and its configuration tells of %d", api.ErrCorrupt, len(layers), len(diffIDs))
	case len(layers) > maxLayers:
		return fmt.Errorf("%w: the image has %d layers, and %d are the most", api.ErrInvalid, len(layers), maxLayers)
	}
	for i, l := range layers {
		if diffIDs[i].Algorithm != "sha256" {
			return fmt.Errorf("%w: a layer with a diff-id of %s: only sha256 is known", api.ErrInvalid, api.Quoted(diffIDs[i].Algorithm))
		}
		l.DiffID = diffIDs[i]
		l.number = i + 1
	}
	im.Layers = slices.Clone(layers)
	chain := ""
	for _, l := range im.Layers {
		chain = Chain(chain, l.DiffID)
		l.Chain = chain
	}
	return nil
}
