//go:build cgo

package frame

/*
#include <stddef.h>

// What of zstd.h is needed, from the stable part of its interface. The library itself is linked by the package that
// carries its sources, which cannot lend its header: hence weak, so that this package can be linked by itself on the
// way.
typedef struct ZSTD_CCtx_s ZSTD_CCtx;
typedef struct ZSTD_DCtx_s ZSTD_DCtx;
#define WEAK __attribute__((weak)) extern
WEAK ZSTD_CCtx *ZSTD_createCCtx(void);
WEAK size_t ZSTD_freeCCtx(ZSTD_CCtx *);
WEAK size_t ZSTD_CCtx_reset(ZSTD_CCtx *, int);
WEAK size_t ZSTD_CCtx_setParameter(ZSTD_CCtx *, int, int);
WEAK size_t ZSTD_CCtx_refPrefix(ZSTD_CCtx *, const void *, size_t);
WEAK size_t ZSTD_compress2(ZSTD_CCtx *, void *, size_t, const void *, size_t);
WEAK size_t ZSTD_compressBound(size_t);
WEAK ZSTD_DCtx *ZSTD_createDCtx(void);
WEAK size_t ZSTD_freeDCtx(ZSTD_DCtx *);
WEAK size_t ZSTD_DCtx_refPrefix(ZSTD_DCtx *, const void *, size_t);
WEAK size_t ZSTD_DCtx_reset(ZSTD_DCtx *, int);
WEAK size_t ZSTD_decompressDCtx(ZSTD_DCtx *, void *, size_t, const void *, size_t);
WEAK unsigned ZSTD_isError(size_t);
WEAK const char *ZSTD_getErrorName(size_t);

enum { session_and_parameters = 3, compression_level = 100, window_log = 101, hash_log = 102 };

// A prefix is a dictionary for one frame that is raw whatever it starts with, and is not copied.
static size_t compress_frame(ZSTD_CCtx *c, void *dst, size_t cap, const void *src, size_t n, const void *dict, size_t dn,
                             int level, int wlog, int hlog) {
	ZSTD_CCtx_reset(c, session_and_parameters);
	ZSTD_CCtx_setParameter(c, compression_level, level);
	ZSTD_CCtx_setParameter(c, window_log, wlog);
	if (hlog)
		ZSTD_CCtx_setParameter(c, hash_log, hlog);
	if (dn)
		ZSTD_CCtx_refPrefix(c, dict, dn);
	return ZSTD_compress2(c, dst, cap, src, n);
}

static size_t decompress_frame(ZSTD_DCtx *d, void *dst, size_t cap, const void *src, size_t n, const void *dict, size_t dn) {
	ZSTD_DCtx_reset(d, session_and_parameters);
	if (dn)
		ZSTD_DCtx_refPrefix(d, dict, dn);
	return ZSTD_decompressDCtx(d, dst, cap, src, n);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	_ "github.com/DataDog/zstd" // links libzstd
)

const windowLog = 22

// dictMax is how many bytes of dictionary an encoder of this level makes use of: as far as its tables hold it.
func (l Level) dictMax() int {
	switch l {
	case Quick:
		return 512 << 10
	case Better:
		return 1 << 20
	default:
		return window - MaxInput
	}
}

// Levels of libzstd. Measured on corpora of sources and of a node project, CPU seconds (bytes): 3, 3 takes 1.5 and 3.9
// s (4.13, 24.3 MB), 1, 1 takes as long for 4 % more; 9, 6 takes 2.0 and 6.6 s (3.75, 21.7 MB), 12, 9 takes 3.3 and 19
// s for 1.4 % less, 15, 9 takes 5.6 and 21 s (3.61, 20.5 MB). To repack the sources with 22, 19 takes 27 % longer than with
// 19, 15, for 0.5 % less of all.
var libzstdLevels = [levels]struct{ plain, delta C.int }{
	Quick:  {3, 3},
	Better: {9, 6},
	Best:   {22, 19},
}

// library is libzstd. Contexts are freed when the garbage collector finds them idle.
type library struct {
	enc [levels]sync.Pool // of *encoder, by level
	dec sync.Pool         // of *decoder
}

type encoder struct{ c *C.ZSTD_CCtx }

type decoder struct{ d *C.ZSTD_DCtx }

func (lib *library) encoder(l Level) *encoder {
	if e, ok := lib.enc[l].Get().(*encoder); ok {
		return e
	}
	e := &encoder{C.ZSTD_createCCtx()}
	if e.c == nil {
		panic("libzstd: out of memory")
	}
	runtime.AddCleanup(e, func(c *C.ZSTD_CCtx) { C.ZSTD_freeCCtx(c) }, e.c)
	return e
}

func (lib *library) decoder() *decoder {
	if d, ok := lib.dec.Get().(*decoder); ok {
		return d
	}
	d := &decoder{C.ZSTD_createDCtx()}
	if d.d == nil {
		panic("libzstd: out of memory")
	}
	runtime.AddCleanup(d, func(d *C.ZSTD_DCtx) { C.ZSTD_freeDCtx(d) }, d.d)
	return d
}

// compress appends to dst the frame of src, with its magic number.
func (lib *library) compress(dst, src, dict []byte, l Level, u use) []byte {
	at := len(dst)
	dst = slices.Grow(dst, int(C.ZSTD_compressBound(C.size_t(len(src)))))
	out := dst[at:cap(dst)]
	zl, hlog := libzstdLevels[l].plain, 0
	if u == forDelta {
		zl = libzstdLevels[l].delta
	}
	if len(dict) > 0 {
		// The tables of these levels are made for streams: they forget the start of a longer dictionary.
		switch total := bits.Len(uint(len(dict) + len(src))); {
		case l == Quick:
			hlog = min(max(total-1, 12), 18)
		case l == Better && total > 18:
			hlog = min(total, 21)
		}
	}
	e := lib.encoder(l)
	n := C.compress_frame(e.c, pointer(out), C.size_t(len(out)), pointer(src), C.size_t(len(src)),
		pointer(dict), C.size_t(len(dict)), zl, windowLog, C.int(hlog))
	if C.ZSTD_isError(n) != 0 {
		panic(fmt.Sprintf("libzstd: %s", C.GoString(C.ZSTD_getErrorName(n)))) // of memory, of which it needs little
	}
	runtime.KeepAlive(e)
	lib.enc[l].Put(e)
	return dst[:at+int(n)]
}

// decompress decodes a frame into dst, which has the announced length.
func (lib *library) decompress(dst, frame, dict []byte) (int, error) {
	d := lib.decoder()
	n := C.decompress_frame(d.d, pointer(dst), C.size_t(len(dst)), pointer(frame), C.size_t(len(frame)),
		pointer(dict), C.size_t(len(dict)))
	runtime.KeepAlive(d)
	lib.dec.Put(d)
	if C.ZSTD_isError(n) != 0 {
		return 0, errors.New(C.GoString(C.ZSTD_getErrorName(n)))
	}
	return int(n), nil
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
