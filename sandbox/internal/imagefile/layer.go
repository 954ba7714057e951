package imagefile

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"snapfs/sandbox/api"
)

// Layer is one layer of an image.
type Layer struct {
	DiffID v1.Hash
	Chain  string // id of the layer with those below it
	blob   *blob
	digest *v1.Hash // of the blob; nil: it is not told
	number int      // in the image, from 1
}

// Chain is the chain id of a layer over one with another chain id, "" for none.
func Chain(below string, diffID v1.Hash) string {
	if below == "" {
		return diffID.String()
	}
	sum := sha256.Sum256([]byte(below + " " + diffID.String()))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// What a layer may become when it is unpacked: some bytes more than so many times its size. The best that gzip can do is
// a thousand times. Tests have fewer bytes.
var freeBytes int64 = 1 << 30

const maxRatio = 2048

// maxWindow is the most memory that a zstd frame may ask for: that of zstd --long.
const maxWindow = 128 << 20

// Read gives fn the layer, unpacked; progress, if not nil, is told of the bytes of the blob that were read. Read reads to
// the end, whatever fn has left, and compares the digests. With an error, nothing of what fn has seen counts.
func (l *Layer) Read(ctx context.Context, progress func(n int64), fn func(r io.Reader) error) (err error) {
	defer func() {
		if err != nil && l.number > 0 {
			err = fmt.Errorf("layer %d, %s: %w", l.number, l.DiffID, err)
		}
	}()
	f, err := l.blob.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	packed := &counted{ctx: ctx, r: f, sum: sha256.New(), progress: progress}
	r, done, err := Decompress(packed)
	if err != nil {
		return err
	}
	defer done()
	plain := &bounded{r: r, sum: sha256.New(), left: freeBytes + maxRatio*l.blob.size}
	if err := fn(plain); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, plain); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, packed); err != nil {
		return err
	}
	if packed.n != l.blob.size {
		return fmt.Errorf("%w: it ends after %d bytes of %d", api.ErrCorrupt, packed.n, l.blob.size)
	}
	if l.digest != nil && hex.EncodeToString(packed.sum.Sum(nil)) != l.digest.Hex {
		return fmt.Errorf("%w: its blob is not what the digest %s says", api.ErrCorrupt, l.digest)
	}
	if l.DiffID.Hex != "" && hex.EncodeToString(plain.sum.Sum(nil)) != l.DiffID.Hex {
		return fmt.Errorf("%w: it is not what its diff-id says", api.ErrCorrupt)
	}
	return nil
}

// Decompress unpacks what is compressed with gzip or zstd, and gives all else as it is. done frees what that took.
func Decompress(from io.Reader) (r io.Reader, done func(), err error) {
	in := bufio.NewReaderSize(from, 64<<10)
	head, err := in.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	switch Compression(head) {
	case Gzip:
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, damaged(err)
		}
		return z, func() {}, nil
	case Zstd:
		z, err := zstd.NewReader(in,
			zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, damaged(err)
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// damaged marks errors of what is unpacked, but not those of who reads the file.
func damaged(err error) error {
	var own *readError
	if errors.As(err, &own) {
		return own.err
	}
	return fmt.Errorf("%w: %w", api.ErrCorrupt, err)
}

// readError is an error of reading the archive itself, on its way through a decompressor.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// counted reads a blob and adds up its digest.
type counted struct {
	ctx      context.Context
	r        io.Reader
	sum      hash.Hash
	n        int64
	progress func(n int64)
}

func (c *counted) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, &readError{err}
	}
	n, err := c.r.Read(p)
	c.n += int64(n)
	_, _ = c.sum.Write(p[:n]) // it cannot fail
	if c.progress != nil && n > 0 {
		c.progress(int64(n))
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = &readError{err}
	}
	return n, err
}

// bounded reads what is unpacked, adds up its digest, and ends at a bound.
type bounded struct {
	r    io.Reader
	sum  hash.Hash
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%w: what it is unpacked is more than %d times its size", api.ErrInvalid, maxRatio)
	}
	_, _ = b.sum.Write(p[:n]) // it cannot fail
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(err)
	}
	return n, err
}
