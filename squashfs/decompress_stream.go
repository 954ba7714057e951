package squashfs

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
	"github.com/ulikunitz/xz/lzma"
)

// zstdDecoder unpacks whole frames only, so it starts no goroutines. It keeps one state per processor.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
})

// unpackZstdGo is unpackZstd if there is no C compiler, and its twin in the tests.
func unpackZstdGo(dst, src []byte) (int, error) {
	d, err := zstdDecoder()
	if err != nil {
		return 0, err
	}
	out, err := d.DecodeAll(src, dst[:0:len(dst)])
	return len(out), err
}

// zlibReader is a pooled inflater with its source.
type zlibReader struct {
	src bytes.Reader
	z   io.ReadCloser // nil until first used
}

var zlibReaders = sync.Pool{New: func() any { return new(zlibReader) }}

func unpackZlib(dst, src []byte) (int, error) {
	zr := zlibReaders.Get().(*zlibReader)
	defer zlibReaders.Put(zr)
	zr.src.Reset(src)
	var err error
	if zr.z == nil {
		zr.z, err = zlib.NewReader(&zr.src)
	} else {
		err = zr.z.(zlib.Resetter).Reset(&zr.src, nil)
	}
	if err != nil {
		return 0, err
	}
	return drain(zr.z, dst)
}

// maxDictionary bounds what a block's header may ask for: a block never needs a larger dictionary.
const maxDictionary = maxBlockSize

// xzReader is a pooled xz decoder with its source. It keeps its dictionary once allocated.
type xzReader struct {
	src bytes.Reader
	z   *xz.Reader // nil until first used
}

var xzReaders = sync.Pool{New: func() any { return new(xzReader) }}

func unpackXz(dst, src []byte) (int, error) {
	xr := xzReaders.Get().(*xzReader)
	xr.src.Reset(src)
	var err error
	if xr.z == nil {
		xr.z, err = xz.NewReader(&xr.src, maxDictionary)
	} else {
		err = xr.z.Reset(&xr.src)
	}
	if err != nil {
		return 0, err
	}
	n, err := drain(xr.z, dst)
	if err == nil { // a decoder that has seen damage is not reused
		xzReaders.Put(xr)
	}
	return n, err
}

// unpackLzma reads the format of the old lzma tools: properties u8, dictionary size u32, length u64, then the stream.
func unpackLzma(dst, src []byte) (int, error) {
	if len(src) < lzma.HeaderLen {
		return 0, io.ErrUnexpectedEOF
	}
	var head [lzma.HeaderLen]byte
	copy(head[:], src)
	// Distances are no longer than the output, so the dictionary need not be longer, whatever the header says.
	need := uint32(max(len(dst), lzma.MinDictCap))
	binary.LittleEndian.PutUint32(head[1:], min(binary.LittleEndian.Uint32(head[1:]), need))
	r, err := lzma.ReaderConfig{DictCap: maxDictionary}.NewReader(
		io.MultiReader(bytes.NewReader(head[:]), bytes.NewReader(src[lzma.HeaderLen:])))
	if err != nil {
		return 0, err
	}
	return drain(r, dst)
}
