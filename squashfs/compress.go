package squashfs

import (
	"bytes"
	"fmt"

	"github.com/klauspost/compress/zlib"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
)

// compression is how the ship form is compressed.
type compression struct {
	id         uint16
	options    []byte // of the compressor, for the metadata block behind the superblock; nil for none
	compressor func() (compressor, error)
}

// newCompression checks name and level. Compressors are for one goroutine each.
func newCompression(name string, level, blockSize int) (compression, error) {
	pick := func(low, high, standard int) error {
		if level == 0 {
			level = standard
		}
		if level < low || level > high {
			return fmt.Errorf("%s has levels %d to %d, not %d", name, low, high, level)
		}
		return nil
	}
	switch name {
	case "none":
		return compression{
			id:         compressorGzip,
			compressor: func() (compressor, error) { return noCompressor{}, pick(0, 0, 0) },
		}, pick(0, 0, 0)
	case "gzip":
		err := pick(1, 9, 9)
		return compression{
			id:         compressorGzip,
			compressor: func() (compressor, error) { return newGzipCompressor(level) },
		}, err
	case "", "zstd":
		name = "zstd"
		err := pick(1, 22, 15)
		return compression{
			id:         compressorZstd,
			compressor: func() (compressor, error) { return newZstdCompressor(level) },
		}, err
	case "xz":
		// The kernel reserves a dictionary of a block, or of a metadata block if that is larger.
		dict := max(blockSize, metadataSize)
		return compression{id: compressorXz, compressor: func() (compressor, error) { return xzCompressor{dict}, nil }},
			pick(0, 0, 0)
	case "lz4":
		// The options are required here: version (the legacy block format) and flags (high compression).
		c := compression{id: compressorLz4, options: []byte{1, 0, 0, 0, 0, 0, 0, 0}}
		c.compressor = func() (compressor, error) { return &lz4Compressor{high: level > 0}, nil }
		if level > 0 {
			c.options[4] = 1
		}
		return c, pick(0, 9, 0)
	}
	return compression{}, fmt.Errorf("unknown compression %q: none, gzip, zstd, xz or lz4", name)
}

// gzipCompressor writes zlib streams, which squashfs calls gzip.
type gzipCompressor struct {
	w   *zlib.Writer
	buf bytes.Buffer
}

func newGzipCompressor(level int) (*gzipCompressor, error) {
	p := &gzipCompressor{}
	var err error
	p.w, err = zlib.NewWriterLevel(&p.buf, level)
	return p, err
}

func (p *gzipCompressor) compress(dst, src []byte) ([]byte, bool, error) {
	p.buf.Reset()
	p.w.Reset(&p.buf)
	if _, err := p.w.Write(src); err != nil {
		return dst, false, err
	}
	if err := p.w.Close(); err != nil {
		return dst, false, err
	}
	return append(dst, p.buf.Bytes()...), p.buf.Len() < len(src), nil
}

// xzCompressor writes xz streams of one block with a CRC-32, as the kernel reads them.
type xzCompressor struct{ dict int }

func (p xzCompressor) compress(dst, src []byte) ([]byte, bool, error) {
	var buf bytes.Buffer
	w, err := xz.WriterConfig{DictCap: p.dict, CheckSum: xz.CRC32}.NewWriter(&buf)
	if err != nil {
		return dst, false, err
	}
	if _, err := w.Write(src); err != nil {
		return dst, false, err
	}
	if err := w.Close(); err != nil {
		return dst, false, err
	}
	return append(dst, buf.Bytes()...), buf.Len() < len(src), nil
}

// lz4Compressor writes bare lz4 blocks.
type lz4Compressor struct {
	high bool
	fast lz4.Compressor
	best lz4.CompressorHC
	buf  []byte
}

func (p *lz4Compressor) compress(dst, src []byte) ([]byte, bool, error) {
	if n := lz4.CompressBlockBound(len(src)); len(p.buf) < n {
		p.buf = make([]byte, n)
	}
	var n int
	var err error
	if p.high {
		p.best.Level = lz4.Level9
		n, err = p.best.CompressBlock(src, p.buf)
	} else {
		n, err = p.fast.CompressBlock(src, p.buf)
	}
	return append(dst, p.buf[:n]...), n > 0 && n < len(src), err
}
