package imagefile

import (
	"errors"
	"fmt"
	"io"

	"snapfs/sandbox/api"
)

// OpenTar opens a tar file, perhaps compressed, that holds a tree and no image, as an image of one layer without digests
// and configuration. A tar file with an image is api.ErrInvalid: it would hardly be meant as a tree.
func OpenTar(o Options) (*Image, error) {
	f, err := o.open()
	if err != nil {
		return nil, err
	}
	fi := f.Info()
	if !fi.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no file", api.ErrInvalid, o.Path)
	}
	if err == nil {
		if kind := Holds(f, fi.Size()); kind != "" {
			err = fmt.Errorf("%w: %s holds a container image: it is given as %s:FILE", api.ErrInvalid, o.Path, kind)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	size := fi.Size()
	bl := &blob{size, func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, size)), nil }}
	return &Image{blobs: &tarBlobs{f: f}, Layers: []*Layer{{blob: bl}}}, nil
}
