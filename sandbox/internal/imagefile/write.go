package imagefile

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Writer writes an archive with one image. Not safe for concurrent use.
type Writer struct {
	f           *os.File
	compression string
	level       int
	at          int64 // where the next entry begins
	had         map[string]bool
	layers      []Written
}

// Written is a layer that is in an archive.
type Written struct {
	DiffID    v1.Hash
	Size      int64 // unpacked
	CreatedBy string
	blob      v1.Descriptor
}

// NewWriter begins an archive in an empty file. compression of the layers is None, Gzip or Zstd, with a level; 0 is the
// usual one.
func NewWriter(f *os.File, compression string, level int) *Writer {
	return &Writer{f: f, compression: compression, level: level, had: map[string]bool{}}
}

// blockSize is that of tar files.
const blockSize = 512

// Layer adds a layer, which fill writes as a tar file. createdBy is for the image's history.
func (w *Writer) Layer(createdBy string, fill func(to io.Writer) error) (Written, error) {
	begin := w.at + blockSize
	if _, err := w.f.Seek(begin, io.SeekStart); err != nil { // its header comes last
		return Written{}, err
	}
	out := bufio.NewWriterSize(w.f, 256<<10)
	blob, plain := sha256.New(), sha256.New()
	packed := &measured{to: io.MultiWriter(out, blob)}
	to, finish, err := Compress(packed, w.compression, w.level)
	if err != nil {
		return Written{}, err
	}
	unpacked := &measured{to: io.MultiWriter(to, plain)}
	if err := fill(unpacked); err != nil {
		return Written{}, err
	}
	if err := errors.Join(finish(), out.Flush()); err != nil {
		return Written{}, err
	}
	l := Written{
		DiffID: sha256Hash(plain.Sum(nil)), Size: unpacked.n, CreatedBy: createdBy,
		blob: v1.Descriptor{MediaType: layerTypes[w.compression], Size: packed.n, Digest: sha256Hash(blob.Sum(nil))},
	}
	w.layers = append(w.layers, l)
	if w.had[l.blob.Digest.Hex] {
		return l, w.f.Truncate(w.at)
	}
	w.had[l.blob.Digest.Hex] = true
	return l, w.end(blobName(l.blob.Digest), packed.n)
}

// layerTypes are the types of layers by their compression.
var layerTypes = map[string]types.MediaType{
	None: types.OCIUncompressedLayer, Gzip: types.OCILayer, Zstd: types.OCILayerZStd,
}

// Compress compresses what is written until finish is called. The level is the usual one if it is 0.
func Compress(to io.Writer, compression string, level int) (w io.Writer, finish func() error, err error) {
	switch compression {
	case Gzip:
		if level == 0 {
			level = gzip.DefaultCompression
		}
		z, err := gzip.NewWriterLevel(to, level)
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case Zstd:
		speed := zstd.SpeedDefault
		if level != 0 {
			speed = zstd.EncoderLevelFromZstd(level)
		}
		z, err := zstd.NewWriter(to, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return to, func() error { return nil }, nil
}

// measured counts what is written.
type measured struct {
	to io.Writer
	n  int64
}

func (m *measured) Write(p []byte) (int, error) {
	n, err := m.to.Write(p)
	m.n += int64(n)
	return n, err
}

func sha256Hash(sum []byte) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum)}
}

// end writes the header of an entry whose contents have been written behind it.
func (w *Writer) end(name string, size int64) error {
	var head bytes.Buffer
	t := tar.NewWriter(&head)
	err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatGNU,
	})
	if err != nil {
		return err
	}
	if head.Len() != blockSize {
		return fmt.Errorf("a header of %d bytes", head.Len())
	}
	if _, err := w.f.WriteAt(head.Bytes(), w.at); err != nil {
		return err
	}
	w.at += blockSize + (size+blockSize-1)/blockSize*blockSize
	return w.f.Truncate(w.at)
}

// small adds an entry that is known as a whole.
func (w *Writer) small(name string, data []byte) error {
	if _, err := w.f.WriteAt(data, w.at+blockSize); err != nil {
		return err
	}
	return w.end(name, int64(len(data)))
}

// blob adds a document by its digest.
func (w *Writer) blob(kind types.MediaType, document any) (v1.Descriptor, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return v1.Descriptor{}, err
	}
	sum := sha256.Sum256(text)
	d := v1.Descriptor{MediaType: kind, Size: int64(len(text)), Digest: sha256Hash(sum[:])}
	return d, w.small(blobName(d.Digest), text)
}

// Finish ends the archive, which is a docker archive or one with an OCI layout: with the configuration of the image, which
// was made at a time, and with its name, which may be "". It gives the image's id.
func (w *Writer) Finish(docker bool, c Config, created time.Time, tag string) (v1.Hash, error) {
	file := v1.ConfigFile{
		Architecture: c.Architecture, OS: c.OS, Variant: c.Variant, OSVersion: c.OSVersion, Author: c.Author, Config: c.Config,
		Created: v1.Time{Time: created}, RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{}},
	}
	layers := []v1.Descriptor{}
	paths := []string{}
	for _, l := range w.layers {
		file.RootFS.DiffIDs = append(file.RootFS.DiffIDs, l.DiffID)
		file.History = append(file.History, v1.History{Created: v1.Time{Time: created}, CreatedBy: l.CreatedBy})
		layers = append(layers, l.blob)
		paths = append(paths, blobName(l.blob.Digest))
	}
	config, err := w.blob(types.OCIConfigJSON, file)
	if err != nil {
		return v1.Hash{}, err
	}
	if tag != "" && !strings.Contains(tag[strings.LastIndexByte(tag, '/')+1:], ":") {
		tag += ":latest"
	}
	if docker {
		image := dockerImage{Config: blobName(config.Digest), Layers: paths}
		if tag != "" {
			image.RepoTags = []string{tag}
		}
		text, err := json.Marshal([]dockerImage{image})
		if err == nil {
			err = w.small(dockerManifest, text)
		}
		if err != nil {
			return v1.Hash{}, err
		}
		return config.Digest, w.close()
	}
	manifest, err := w.blob(types.OCIManifestSchema1, v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: layers,
	})
	if err != nil {
		return v1.Hash{}, err
	}
	manifest.Platform = &v1.Platform{Architecture: c.Architecture, OS: c.OS, Variant: c.Variant, OSVersion: c.OSVersion}
	if tag != "" {
		manifest.Annotations = map[string]string{refName: tag}
	}
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{manifest},
	})
	if err == nil {
		err = w.small(ociIndex, index)
	}
	if err == nil {
		err = w.small("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	}
	if err == nil {
		err = w.close()
	}
	return config.Digest, err
}

// close ends the tar file.
func (w *Writer) close() error { return w.f.Truncate(w.at + 2*blockSize) }
