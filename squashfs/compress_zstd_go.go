//go:build !cgo

package squashfs

import "github.com/klauspost/compress/zstd"

// zstdCompressor does without libzstd, with fewer levels.
type zstdCompressor struct{ w *zstd.Encoder }

func newZstdCompressor(level int) (compressor, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(maxBlockSize), zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)))
	return zstdCompressor{w}, err
}

func (p zstdCompressor) compress(dst, src []byte) ([]byte, bool, error) {
	n := len(dst)
	dst = p.w.EncodeAll(src, dst)
	return dst, len(dst)-n < len(src), nil
}
