package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"snapfs/sandbox/internal/pace"
)

// An export that is streamed has its place, and the image on the disk of the home, until it has been taken: streamBytes
// within each streamWait at least.
const (
	streamBytes = 4 << 20
	streamWait  = time.Minute
)

// streamImage writes an image to w, as long as that is not too slow. The beginning of an image is known last, so that it
// is made in a file without a name first, in the home.
func (h *Home) streamImage(ctx context.Context, w io.Writer, fill func(f *os.File) error) (_ ExportResult, err error) {
	f, err := os.OpenFile(h.dir, unix.O_TMPFILE|os.O_RDWR, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		name := filepath.Join(h.dir, emptyDir+"."+uuid.NewString())
		if f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			err = os.Remove(name)
		}
	}
	if err != nil {
		return ExportResult{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := fill(f); err != nil {
		return ExportResult{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return ExportResult{}, err
	}
	w = pace.NewWriter(w, pace.New(streamBytes, streamWait))
	sum := blake3.New()
	buf := make([]byte, 256<<10)
	var size int64
	for {
		if err := ctx.Err(); err != nil {
			return ExportResult{}, err
		}
		n, err := f.Read(buf)
		if n > 0 {
			_, _ = sum.Write(buf[:n]) // it cannot fail
			if _, err := w.Write(buf[:n]); err != nil {
				return ExportResult{}, err
			}
			size += int64(n)
		}
		if errors.Is(err, io.EOF) {
			return ExportResult{Path: "-", Size: size, Digest: hex.EncodeToString(sum.Sum(nil))}, nil
		}
		if err != nil {
			return ExportResult{}, err
		}
	}
}
