package imagefile

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/patient"
)

// blobs are the files of an archive, by name.
type blobs interface {
	io.Closer
	has(name string) bool
	// find gives a blob; api.ErrCorrupt if it is missing.
	find(name string) (*blob, error)
}

// blob is a file of an archive.
type blob struct {
	size int64
	open func() (io.ReadCloser, error)
}

// tarBlobs are the files in a tar file. Their contents are read where they lie.
type tarBlobs struct {
	f     *patient.File
	files map[string]*blob
	links map[string]string // names that stand for others
}

// Bounds of the names in an archive: a few for each layer.
const (
	maxNames = 64 << 10
	maxName  = 1 << 10 // bytes
	maxLinks = 8       // that lead from one to the next
)

// indexTar finds the files of a tar file.
func indexTar(f *patient.File, size int64) (*tarBlobs, error) {
	if err := looksLikeTar(f); err != nil {
		return nil, err
	}
	b := &tarBlobs{f: f, files: map[string]*blob{}, links: map[string]string{}}
	section := io.NewSectionReader(f, 0, size)
	r := tar.NewReader(section)
	for n := 0; ; n++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: it is damaged or cut off: %w", api.ErrCorrupt, err)
		}
		if n == maxNames {
			return nil, fmt.Errorf("%w: more than %d names: no archive of an image", api.ErrInvalid, maxNames)
		}
		name := clean(h.Name)
		if len(name) > maxName {
			continue // nothing that is looked for
		}
		switch h.Typeflag {
		case tar.TypeReg:
			at, err := section.Seek(0, io.SeekCurrent)
			if err != nil {
				return nil, err
			}
			if h.Size < 0 || h.Size > size-at {
				return nil, fmt.Errorf("%w: it is cut off in %s", api.ErrCorrupt, api.Quoted(h.Name))
			}
			delete(b.links, name)
			b.files[name] = &blob{h.Size, func() (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(f, at, h.Size)), nil
			}}
		case tar.TypeSymlink, tar.TypeLink:
			to := clean(h.Linkname)
			if h.Typeflag == tar.TypeSymlink {
				to = clean(path.Join(path.Dir(name), h.Linkname))
			}
			delete(b.files, name)
			b.links[name] = to
		}
	}
}

// clean is a name without what does not count, below the root of the archive.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

func (b *tarBlobs) Close() error { return b.f.Close() }

func (b *tarBlobs) lookUp(name string) *blob {
	name = clean(name)
	for range maxLinks {
		if bl := b.files[name]; bl != nil {
			return bl
		}
		to, ok := b.links[name]
		if !ok {
			return nil
		}
		name = to
	}
	return nil
}

func (b *tarBlobs) has(name string) bool { return b.lookUp(name) != nil }

func (b *tarBlobs) find(name string) (*blob, error) {
	if bl := b.lookUp(name); bl != nil {
		return bl, nil
	}
	return nil, errMissing(name)
}

func errMissing(name string) error {
	return fmt.Errorf("%w: %s is missing: it is incomplete or cut off", api.ErrCorrupt, api.Quoted(name))
}

// looksLikeTar refuses what is no tar file, and says what it is if that is known.
func looksLikeTar(f io.ReaderAt) error {
	var head [512]byte
	n, err := f.ReadAt(head[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	what := ""
	switch {
	case n >= 4 && string(head[:4]) == "hsqs":
		what = "a squashfs image: it is given by its path alone"
	case Compression(head[:n]) != None:
		what = "compressed: unpack it first (" + Compression(head[:n]) + " -d)"
	case n == 0:
		what = "empty"
	case n < len(head):
		what = "no tar file"
	default:
		sum, err := checksum(head[:])
		if err != nil || sum != wantedChecksum(head[:]) {
			what = "no tar file"
		}
	}
	if what != "" {
		return fmt.Errorf("%w: it is %s", api.ErrInvalid, what)
	}
	return nil
}

// IsTar reports whether a file begins as a tar file does.
func IsTar(head []byte) bool {
	if len(head) < 512 {
		return false
	}
	sum, err := checksum(head[:512])
	return err == nil && sum == wantedChecksum(head[:512])
}

// checksum is what a tar header says that its bytes add up to.
func checksum(head []byte) (sum int64, err error) {
	text := strings.Trim(string(head[148:156]), " \x00")
	_, err = fmt.Sscanf(text, "%o", &sum)
	return sum, err
}

func wantedChecksum(head []byte) (sum int64) {
	for i, c := range head {
		if i >= 148 && i < 156 {
			c = ' '
		}
		sum += int64(c)
	}
	return sum
}

// How a blob is compressed, by its first bytes.
const (
	None = "none"
	Gzip = "gzip"
	Zstd = "zstd"
)

// Compression tells how what begins with head is compressed.
func Compression(head []byte) string {
	switch {
	case len(head) >= 3 && head[0] == 0x1f && head[1] == 0x8b && head[2] == 8:
		return Gzip
	case len(head) >= 4 && isZstd(binary.LittleEndian.Uint32(head)):
		return Zstd
	}
	return None
}

// isZstd knows the magic numbers of zstd's frames, the skippable ones included.
func isZstd(magic uint32) bool { return magic == 0xfd2fb528 || magic&0xfffffff0 == 0x184d2a50 }

// dirBlobs are the files below a directory. No symbolic link is followed, and no mount is entered: it may be one that this
// process serves.
type dirBlobs struct {
	dir *patient.File
	do  func(fn func() error) error
}

func (b *dirBlobs) Close() error { return b.dir.Close() }

func (b *dirBlobs) openFile(name string) (*patient.File, error) {
	f, err := b.dir.OpenBelow(clean(name), b.do)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return nil, errMissing(name)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return nil, fmt.Errorf("%w: %s is a symbolic link, leads out of the layout, or is in a mount",
			api.ErrInvalid, api.Quoted(name))
	case err != nil:
		return nil, fmt.Errorf("opening %s: %w", api.Quoted(name), err)
	case !f.Info().Mode().IsRegular():
		return nil, errors.Join(fmt.Errorf("%w: %s is no file", api.ErrInvalid, api.Quoted(name)), f.Close())
	}
	return f, nil
}

func (b *dirBlobs) has(name string) bool {
	_, err := b.find(name)
	return err == nil
}

func (b *dirBlobs) find(name string) (*blob, error) {
	f, err := b.openFile(name)
	if err != nil {
		return nil, err
	}
	size := f.Size()
	if err := f.Close(); err != nil {
		return nil, err
	}
	return &blob{size, func() (io.ReadCloser, error) {
		f, err := b.openFile(name)
		if err != nil {
			return nil, err
		}
		if f.Size() != size {
			return nil, errors.Join(fmt.Errorf("%w: %s has another size now", api.ErrConflict, api.Quoted(name)), f.Close())
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, 0, size), f}, nil
	}}, nil
}
