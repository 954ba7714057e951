package imagefile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"snapfs/sandbox/api"
)

// ociIndex names the images of an OCI layout.
const ociIndex = "index.json"

// Annotations that give a manifest in an index its name.
const (
	refName       = "org.opencontainers.image.ref.name"
	containerName = "io.containerd.image.name"
)

// Bounds of indexes.
const (
	maxDepth     = 4    // of indexes in indexes
	maxManifests = 4096 // that are looked at
)

// openOCI finds an image of an OCI layout.
func (im *Image) openOCI(ref string, want platform) error {
	text, err := document(im.blobs, ociIndex)
	if err != nil {
		return err
	}
	var index v1.IndexManifest
	if err := parse(text, ociIndex, &index); err != nil {
		return err
	}
	var names []string
	var named []v1.Descriptor
	for _, d := range index.Manifests {
		name := d.Annotations[refName]
		full := d.Annotations[containerName]
		if name != "" {
			names = append(names, name)
		}
		if ref == "" || name == ref || full != "" && sameTag(full, ref) || name != "" && sameTag(name, ref) ||
			ref == "@"+d.Digest.String() {
			named = append(named, d)
		}
	}
	if len(named) == 0 && strings.HasPrefix(ref, "@") { // further down, perhaps
		digest, err := v1.NewHash(strings.TrimPrefix(ref, "@"))
		if err != nil {
			return fmt.Errorf("%w: %s is no digest", api.ErrInvalid, api.Quoted(ref))
		}
		s := search{im: im, left: maxManifests, digest: &digest}
		if err := s.look(index.Manifests, 0); err != nil {
			return err
		}
		named = s.found
	}
	if len(named) == 1 && strings.HasPrefix(ref, "@") && named[0].MediaType.IsImage() {
		return im.openManifest(named[0]) // it is for the platform that it is for
	}
	s := search{im: im, want: want, left: maxManifests}
	if err := s.look(named, 0); err != nil {
		return err
	}
	switch {
	case len(s.found) == 1:
		return im.openManifest(s.found[0])
	case len(s.found) == 0 && len(s.others) > 0:
		return fmt.Errorf("%w: it has no image for %s, but for %s (--platform)", api.ErrNotFound, want,
			strings.Join(s.others, ", "))
	}
	return choose(len(s.found), ref, names)
}

// search goes through indexes.
type search struct {
	im     *Image
	want   platform
	digest *v1.Hash // in the place of a platform
	left   int
	found  []v1.Descriptor
	others []string // platforms that are not wanted
}

// look finds manifests. A platform counts where it is told: an only image may be for any.
func (s *search) look(list []v1.Descriptor, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: indexes in indexes, more than %d deep", api.ErrInvalid, maxDepth)
	}
	for _, d := range list {
		if s.left--; s.left < 0 {
			return fmt.Errorf("%w: more than %d manifests", api.ErrInvalid, maxManifests)
		}
		if s.digest != nil && d.Digest == *s.digest {
			s.found = []v1.Descriptor{d}
			return nil
		}
		switch {
		case d.MediaType.IsIndex():
			text, err := s.im.verified(d)
			if err != nil {
				return err
			}
			var index v1.IndexManifest
			if err := parse(text, d.Digest.String(), &index); err != nil {
				return err
			}
			if err := s.look(index.Manifests, depth+1); err != nil {
				return err
			}
		case s.digest != nil || !d.MediaType.IsImage():
		case d.Platform == nil || s.want.matches(platformOf(d.Platform)):
			if !s.has(d) {
				s.found = append(s.found, d)
			}
		default:
			if p := platformOf(d.Platform); p.os != "unknown" && len(s.others) < 20 {
				s.others = append(s.others, p.String())
			}
		}
	}
	return nil
}

// has reports whether a manifest was found before, by another name.
func (s *search) has(d v1.Descriptor) bool {
	for _, f := range s.found {
		if f.Digest == d.Digest {
			return true
		}
	}
	return false
}

// blobName is the name of a blob in a layout.
func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

// sized finds a blob of the size that a descriptor tells.
func (im *Image) sized(d v1.Descriptor) (*blob, error) {
	if d.Digest.Algorithm != "sha256" || len(d.Digest.Hex) != 64 || !isHex(d.Digest.Hex) {
		return nil, fmt.Errorf("%w: digest %s: only sha256 is known", api.ErrInvalid, api.Quoted(d.Digest.String()))
	}
	bl, err := im.blobs.find(blobName(d.Digest))
	if err != nil {
		return nil, err
	}
	if bl.size != d.Size {
		return nil, fmt.Errorf("%w: blob %s has %d bytes in the place of %d", api.ErrCorrupt, d.Digest, bl.size, d.Size)
	}
	return bl, nil
}

// verified reads a document whose digest is known.
func (im *Image) verified(d v1.Descriptor) ([]byte, error) {
	if _, err := im.sized(d); err != nil {
		return nil, err
	}
	text, err := document(im.blobs, blobName(d.Digest))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != d.Digest.Hex {
		return nil, fmt.Errorf("%w: blob %s is not what its digest says", api.ErrCorrupt, d.Digest)
	}
	return text, nil
}

// openManifest takes an image by its manifest.
func (im *Image) openManifest(d v1.Descriptor) error {
	text, err := im.verified(d)
	if err != nil {
		return err
	}
	var m v1.Manifest
	if err := parse(text, d.Digest.String(), &m); err != nil {
		return err
	}
	if !m.Config.MediaType.IsConfig() {
		return fmt.Errorf("%w: it is no container image: its configuration is of type %s", api.ErrInvalid,
			api.Quoted(string(m.Config.MediaType)))
	}
	if text, err = im.verified(m.Config); err != nil {
		return err
	}
	im.ID = m.Config.Digest
	diffIDs, err := im.Config.parse(text)
	if err != nil {
		return err
	}
	var layers []*Layer
	for _, l := range m.Layers[:min(len(m.Layers), maxLayers+1)] {
		if !layerType(l.MediaType) {
			return fmt.Errorf("%w: a layer of type %s", api.ErrInvalid, api.Quoted(string(l.MediaType)))
		}
		bl, err := im.sized(l)
		if err != nil {
			return err
		}
		layers = append(layers, &Layer{blob: bl, digest: &l.Digest})
	}
	return im.addLayers(diffIDs, layers)
}

// layerType reports whether a blob of this type is a tar file, perhaps compressed.
func layerType(t types.MediaType) bool {
	return t.IsLayer() || strings.HasPrefix(string(t), "application/vnd.docker.image.rootfs.") ||
		strings.HasPrefix(string(t), "application/vnd.oci.image.layer.") && !strings.Contains(string(t), "encrypted")
}
