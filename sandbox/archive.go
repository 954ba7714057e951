package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/imagefile"
)

// An archive is a tar file, or a file or a directory with a container image, as what a workspace is made from. Its layers
// become layers of the home: see archiveimport.go.

// archive says where an archive is.
type archive struct {
	kind     string // api.DockerArchive and so on; tarFile
	path     string // absolute, without symbolic links
	ref      string // which image of several
	platform string
}

// tarFile is the kind of a tar file without an image.
const tarFile = "tar"

// label is how the archive is called as a source.
func (a *archive) label() string {
	switch {
	case a.kind == tarFile:
		return a.path
	case a.ref == "" || a.ref[0] == '@':
		return a.kind + ":" + a.path + a.ref
	}
	return a.kind + ":" + a.path + ":" + a.ref
}

// archiveSource finds the archive that a source KIND:PATH[:TAG] names.
func (h *Home) archiveSource(ctx context.Context, kind, rest, platform string) (source, error) {
	if !strings.HasPrefix(rest, "/") {
		return source{}, fmt.Errorf("%w: %s:%s: to the Go API, paths are absolute", ErrInvalid, kind, api.Quoted(rest))
	}
	if err := imagefile.ValidPlatform(platform); err != nil {
		return source{}, err
	}
	a, err := patiently(ctx, h, rest, func() (*archive, error) {
		mounts, err := readMounts()
		if err != nil {
			return nil, err
		}
		for path, ref := range splits(rest) {
			at, err := h.locate(path, mounts)
			switch {
			case err != nil:
				return nil, err
			case at.inside != "":
				return nil, fmt.Errorf("%w: %s is inside the mount of workspace %s: copy it to a place outside", ErrInvalid, path, at.inside)
			case below(at.path, h.dir):
				return nil, fmt.Errorf("%w: %s is inside the home %s", ErrInvalid, path, h.dir)
			case at.missing == 0:
				return &archive{kind: kind, platform: platform, path: at.path, ref: ref}, nil
			}
		}
		return nil, fmt.Errorf("%w: %s does not exist", ErrNotFound, rest)
	})
	if err != nil {
		return source{}, err
	}
	return source{label: a.label(), archive: a, foreign: true}, nil
}

// splits yields the ways to divide PATH[:TAG] or PATH[@DIGEST], the longest path first.
func splits(rest string) func(yield func(path, ref string) bool) {
	return func(yield func(path, ref string) bool) {
		if !yield(rest, "") {
			return
		}
		for i := len(rest) - 1; i > 0; i-- {
			switch {
			case i == len(rest)-1:
			case rest[i] == ':':
				if !yield(rest[:i], rest[i+1:]) {
					return
				}
			case rest[i] == '@':
				if !yield(rest[:i], rest[i:]) {
					return
				}
			}
		}
	}
}

// isTarFile reports whether a file begins as a tar file does, or as a compressed one.
func isTarFile(path string) (bool, error) {
	f, err := hosttree.Open(path, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return false, pathError(path, err)
	}
	var head [512]byte
	n, err := io.ReadFull(f, head[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return imagefile.IsTar(head[:n]) || imagefile.Compression(head[:n]) != imagefile.None, errors.Join(err, f.Close())
}

// openArchive opens an archive with the rights of the call's user.
func (h *Home) openArchive(ctx context.Context, a *archive) (*imagefile.Image, error) {
	wait, err := h.patience(ctx, a.path)
	if err != nil {
		return nil, err
	}
	do := func(fn func() error) error {
		return asUser(ctx, func() error {
			err := fn()
			if errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
				return pathError(a.path, err)
			}
			return err
		})
	}
	o := imagefile.Options{Kind: a.kind, Path: a.path, Ref: a.ref, Platform: a.platform, Do: do, Wait: wait}
	if a.kind == tarFile {
		return imagefile.OpenTar(o)
	}
	return imagefile.Open(o)
}
