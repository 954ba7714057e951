package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"snapfs/internal/hosttree"
	"snapfs/layers"
	"snapfs/sandbox/api"
	"snapfs/sandbox/internal/part"
	"snapfs/sandbox/internal/peer"
	"snapfs/squashfs"
)

// compressions that an export knows, the store form first.
var compressions = []string{"none", "zstd", "gzip", "xz", "lz4"}

// Export writes a snapshot as an image file that other tools read, as a tar file, or as a container image. Equal trees give equal bytes, whatever their
// history. The file appears under its name only when it is complete and on the disk.
func (h *Home) Export(ctx context.Context, r ExportRequest) (ExportResult, error) {
	ctx, end, err := h.begin(ctx)
	if err != nil {
		return ExportResult{}, err
	}
	defer end()
	if r.Format == api.FormatBackup {
		return h.exportBackup(ctx, r)
	}
	if r.Compression == "" {
		r.Compression = compressions[0]
	}
	if r.Format == "" {
		r.Format = api.FormatSquashfs
	}
	if r.Format != api.FormatSquashfs {
		if err := validArchiveExport(r); err != nil {
			return ExportResult{}, err
		}
	}
	switch {
	case r.Image != nil && r.Format != api.FormatDocker && r.Format != api.FormatOCI:
		return ExportResult{}, fmt.Errorf("%w: format %s has no options of a container image", ErrInvalid, r.Format)
	case !slices.Contains(compressions, r.Compression):
		return ExportResult{}, fmt.Errorf("%w: compression %s: none, zstd, gzip, xz or lz4",
			ErrInvalid, api.Quoted(r.Compression))
	case r.Level < 0 || r.Level > 22 || r.Level != 0 && r.Compression == compressions[0]:
		return ExportResult{}, fmt.Errorf("%w: compression %s has no level %d", ErrInvalid, r.Compression, r.Level)
	}
	if r.Layer && !r.All() {
		return ExportResult{}, fmt.Errorf("%w: a layer is exported as a whole", ErrInvalid)
	}
	filter, err := filterOf(r.Part)
	if err != nil {
		return ExportResult{}, err
	}
	s, err := h.useSnapshot(ctx, r.Access, r.Snapshot, "export")
	if err != nil {
		return ExportResult{}, err
	}
	if err := h.restorable(s); err != nil {
		return ExportResult{}, err
	}
	session, err := r.SessionID()
	if err != nil {
		return ExportResult{}, err
	}
	var path string
	if r.Writer == nil {
		err = asUser(ctx, func() (err error) {
			path, err = h.exportTarget(r.Path)
			return err
		})
	} else if r.Path != "" {
		err = fmt.Errorf("%w: an export goes to a file or to a writer", ErrInvalid)
	}
	if err != nil {
		return ExportResult{}, err
	}
	if err := h.waitImported(ctx, s.Top, r.Progress); err != nil {
		return ExportResult{}, err
	}
	leave, err := h.working.exports.Enter(ctx, session, r.Progress)
	if err != nil {
		return ExportResult{}, err
	}
	defer leave()
	if s, err = h.still(s); err != nil {
		return ExportResult{}, err
	}
	stop := ""
	if l := h.catalog.Layer(s.Top); r.Layer && l != nil {
		stop = l.Parent // no tier in the place of the topmost layer
	}
	tree, err := h.openLayers(ctx, s.Top, stop)
	if err != nil {
		return ExportResult{}, err
	}
	defer tree.close()
	if r.Layer && s.Top == "" {
		return ExportResult{}, fmt.Errorf("%w: snapshot %s has no layer", ErrInvalid, s.ID)
	}
	if err := tree.has(ctx, r.Part); err != nil {
		return ExportResult{}, classify(err)
	}
	if r.Format != api.FormatSquashfs {
		return h.exportArchive(ctx, s, tree, path, r)
	}
	src, err := exportSource(tree.lowers, r.Layer)
	if err != nil {
		return ExportResult{}, err
	}
	var counted func()
	r.Progress, counted = total(ctx, tree.lowers, r.Part, r.Progress)
	defer counted()
	fill := func(f *os.File) error { return h.writeImage(ctx, f, part.Of(src, filter), r) }
	var result ExportResult
	if r.Writer != nil {
		result, err = h.streamImage(ctx, r.Writer, fill)
	} else {
		result, err = writeImageFile(ctx, path, fill)
	}
	if c, ok := src.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return result, classify(err)
}

// exportTarget checks where an export is to go.
func (h *Home) exportTarget(path string) (string, error) {
	at, err := h.outside(path)
	if err == nil && at.missing == 0 && !at.info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s exists and is not a regular file", ErrInvalid, path)
	}
	return at.path, err
}

// outside checks a place that something is to be written to: nothing of the home.
func (h *Home) outside(path string) (location, error) {
	mounts, err := readMounts()
	if err != nil {
		return location{}, err
	}
	at, err := h.locate(path, mounts)
	switch {
	case err != nil:
		return location{}, err
	case at.inside != "":
		return location{}, fmt.Errorf("%w: %s is inside the mount of workspace %s: choose a place outside",
			ErrInvalid, path, at.inside)
	case mounts.inside(at.path, h.dir):
		return location{}, fmt.Errorf("%w: %s is inside the home %s: choose a place outside",
			ErrInvalid, path, h.dir)
	case at.missing > 1:
		return location{}, fmt.Errorf("%w: directory %s does not exist", ErrNotFound, filepath.Dir(at.path))
	}
	at.holdsHome = mounts.inside(h.dir, at.path)
	return at, nil
}

func exportSource(stack []*layers.Lower, topOnly bool) (squashfs.Source, error) {
	if !topOnly {
		src, err := layers.Merged(stack)
		return src, classify(err)
	}
	src, err := layers.Delta(stack[0], stack[1:])
	return src, classify(err)
}

func (h *Home) writeImage(ctx context.Context, f *os.File, src squashfs.Source, r ExportRequest) error {
	progress := counter(r.Progress, "export")
	if r.Compression != compressions[0] {
		_, err := squashfs.WriteShip(ctx, f, src, squashfs.ShipOptions{
			Compression: r.Compression, Level: r.Level, Progress: progress, Home: h.number,
		})
		return err
	}
	if _, err := f.Seek(squashfs.HeaderSize, io.SeekStart); err != nil {
		return err
	}
	_, err := squashfs.WriteStore(ctx, fileSink{f}, src, squashfs.StoreOptions{Progress: progress, Home: h.number})
	return err
}

// fileSink takes a store-form image into a file that is positioned after the header.
type fileSink struct{ *os.File }

// Cut implements squashfs.Sink: a file has no chunks.
func (fileSink) Cut(squashfs.Cut) error { return nil }

// Header implements squashfs.Sink.
func (s fileSink) Header(p []byte) error {
	_, err := s.WriteAt(p, 0)
	return err
}

// writeImageFile makes a file beside path without a name, lets fill write it, makes it durable and gives it its name.
// Whatever happens before leaves nothing behind, a kill included where the file system knows O_TMPFILE.
func writeImageFile(ctx context.Context, path string, fill func(f *os.File) error) (_ ExportResult, err error) {
	parent, base := filepath.Dir(path), filepath.Base(path)
	tmp := "." + base[:min(len(base), 64)] + "." + uuid.NewString()
	named := false
	var dir, f *os.File // the path is looked up once: what is put in its place meanwhile has no effect
	err = asUser(ctx, func() (err error) {
		dir, err = hosttree.Open(parent, unix.O_PATH|unix.O_DIRECTORY)
		if err == nil {
			f, named, err = createIn(dir, tmp)
		}
		if err != nil {
			err = pathError(parent, err)
		}
		return err
	})
	if dir != nil {
		defer func() { err = errors.Join(err, dir.Close()) }()
	}
	if err != nil {
		return ExportResult{}, err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if named {
			e := asUser(ctx, func() error { return unix.Unlinkat(int(dir.Fd()), tmp, 0) })
			if e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	if err := fill(f); err != nil {
		return ExportResult{}, err
	}
	size, digest, err := digestOf(f)
	if err != nil {
		return ExportResult{}, err
	}
	if err := f.Sync(); err != nil {
		return ExportResult{}, err
	}
	err = asUser(ctx, func() error {
		if !named {
			open := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
			if err := unix.Linkat(unix.AT_FDCWD, open, int(dir.Fd()), tmp, unix.AT_SYMLINK_FOLLOW); err != nil {
				return fmt.Errorf("naming %s: %w", filepath.Join(parent, tmp), err)
			}
			named = true
		}
		if err := unix.Renameat(int(dir.Fd()), tmp, int(dir.Fd()), base); err != nil {
			return fmt.Errorf("naming %s: %w", path, err)
		}
		named = false
		if err := hosttree.SyncAt(dir); peer.From(ctx) == nil || !errors.Is(err, fs.ErrPermission) {
			return err
		}
		return nil // a directory that may be written to and not read
	})
	return ExportResult{Path: path, Size: size, Digest: digest}, err
}

// createIn makes a file in a directory: without a name, or with this one where the file system has no such files.
func createIn(dir *os.File, name string) (f *os.File, named bool, err error) {
	fd, err := unix.Openat(int(dir.Fd()), ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o644)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		fd, err = unix.Openat(int(dir.Fd()), name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		named = err == nil
	}
	if err != nil {
		return nil, false, err
	}
	return os.NewFile(uintptr(fd), filepath.Join(dir.Name(), name)), named, nil
}

// digestOf reads a whole file again: its header was written last.
func digestOf(f *os.File) (size int64, digest string, err error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, "", err
	}
	sum := blake3.New()
	if size, err = io.Copy(sum, f); err != nil {
		return 0, "", err
	}
	return size, hex.EncodeToString(sum.Sum(nil)), nil
}
