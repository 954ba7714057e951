//go:build !cgo

package squashfs

import "github.com/klauspost/compress/zstd"

// zstdPacker does without libzstd, with fewer levels.
type zstdPacker struct{ w *zstd.Encoder }

func newZstdPacker(level int) (packer, error) {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(maxBlockSize), zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)))
	return zstdPacker{w}, err
}

func (p zstdPacker) pack(dst, src []byte) ([]byte, bool, error) {
	n := len(dst)
	dst = p.w.EncodeAll(src, dst)
	return dst, len(dst)-n < len(src), nil
}
