package httpapi

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"snapfs/sandbox/api"
)

// maxEntries bounds the entries of an archive.
const maxEntries = 500_000

func (s *Server) addArchive() {
	stream(s, operation{
		method: http.MethodPut, path: "/sandboxvolumes/{id}/files/archive", id: "import-volume-archive", tag: "files",
		scope: api.ScopeWrite, summary: "Unpack a tar archive into a directory; what was unpacked stays if it fails midway",
	}, archiveDoc, func(who api.Access, f *fileInput, w http.ResponseWriter, r *http.Request) error {
		at, err := s.place(r.Context(), who, s.volume, f.ID, f.Path, true)
		if err != nil {
			return err
		}
		done, err := s.unpack(r.Context(), at, s.body(w, r))
		return answer(w, err, done)
	})
}

// unpack makes the files of an archive below a directory. Each is whole or not there.
func (s *Server) unpack(ctx context.Context, at api.WorkFileRequest, archive io.Reader) (done Imported, err error) {
	in := tar.NewReader(archive)
	for entry := 0; ; entry++ {
		h, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			_, err := io.Copy(io.Discard, archive) // what pads it
			return done, err
		case err != nil:
			return done, ofArchive(err)
		case entry >= maxEntries:
			return done, fmt.Errorf("%w: archive: more than %d entries", api.ErrInvalid, maxEntries)
		}
		if err := s.unpackEntry(ctx, at, h, in, &done); err != nil {
			return done, ofArchive(err)
		}
	}
}

// ofArchive says of an error without a class, which is of the archive's form, that the archive is not one.
func ofArchive(err error) error {
	var large *http.MaxBytesError
	if api.ClassOf(err).Err == nil && !errors.As(err, &large) {
		return fmt.Errorf("%w: archive: %w", api.ErrInvalid, err)
	}
	return err
}

func (s *Server) unpackEntry(
	ctx context.Context, at api.WorkFileRequest, h *tar.Header, contents io.Reader, done *Imported,
) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	at.Path = path.Join("/", at.Path, name)
	mode := uint32(h.Mode) & 0o777 //nolint:gosec // its lowest bits
	switch h.Typeflag {
	case tar.TypeDir:
		_, err = s.service.MakeDir(ctx, api.MakeDirRequest{WorkFileRequest: at, Mode: mode, Parents: true})
		done.Directories++
	case tar.TypeReg:
		if h.Size > s.o.MaxFile-done.Bytes { // of one with holes, more than the archive has
			return &http.MaxBytesError{Limit: s.o.MaxFile}
		}
		done.Bytes += h.Size
		_, err = s.service.PutFile(ctx, api.PutFileRequest{
			WorkFileRequest: at, Mode: mode, Parents: true, Size: h.Size,
		}, contents)
		done.Files++
	default:
		return fmt.Errorf("%w: archive: %s: neither a file nor a directory", api.ErrInvalid, api.Quoted(h.Name))
	}
	return err
}

// entryName is the path of an entry below the directory into which it is unpacked.
func entryName(name string) (string, error) {
	bad := path.IsAbs(name) || len(name) > maxPath || strings.ContainsRune(name, 0)
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == ".."
	}
	if bad {
		return "", fmt.Errorf("%w: archive: %s: leads elsewhere", api.ErrInvalid, api.Quoted(name))
	}
	return path.Clean("/" + name), nil
}
