package squashfs

import (
	"context"
	"io"
)

// WriteStore writes the store form of src: uncompressed contiguous data without fragments in blocks of 1 MiB, all
// metadata uncompressed, no export table. Unless opts say otherwise, the bytes depend on the tree only. After an error,
// of class ErrLimit if squashfs cannot hold the tree, the sink has a partial image that must be discarded.
func WriteStore(ctx context.Context, sink Sink, src Source, opts StoreOptions) (Info, error) {
	w := newWriter(src, opts.TempDir, opts.Progress)
	w.home, w.renumber, w.maxLinks, w.maxInodes = opts.Home, opts.Renumber, opts.MaxLinks, opts.MaxInodes
	if opts.Share {
		w.known = &knownContents{}
	}
	defer w.spools.close()
	data := &storeData{w: w, sink: sink, off: HeaderSize}
	w.data, w.blockSize = data, maxBlockSize
	if err := w.walk(ctx); err != nil {
		return Info{}, err
	}
	data.buf = nil
	sb := superblock{
		compressor: compressorGzip,
		flags: flagUncompressedInodes | flagUncompressedData | flagUncompressedFragments | flagNoFragments |
			flagUncompressedXattrs | flagUncompressedIDs,
	}
	if err := w.image(ctx, data, data.off, sb, tableOptions{extension: true}); err != nil {
		return Info{}, err
	}
	return w.info, nil
}

// storeData writes contents uncompressed.
type storeData struct {
	w    *writer
	sink Sink
	off  uint64 // in the image
	buf  []byte
}

func (s *storeData) emit(_ context.Context, p pending) error { return s.w.finish(&p) }

func (s *storeData) file(ctx context.Context, name string, e *Entry, f File, extents []Extent) (*layout, error) {
	l := &layout{fragment: noFragment}
	size := e.Attr.Size
	ranges := blockRanges(extents, size, maxBlockSize)
	at, stored := int64(0), int64(0)
	for _, r := range ranges {
		l.add(uint64(r.Off-at)/maxBlockSize, 0)
		l.sparse += uint64(r.Off - at)
		l.add(uint64(r.Len)/maxBlockSize, maxBlockSize|dataUncompressed)
		if tail := r.Len % maxBlockSize; tail != 0 {
			l.add(1, uint32(tail)|dataUncompressed)
		}
		at = r.Off + r.Len
		stored += r.Len
	}
	if at < size {
		l.add(uint64(size-at+maxBlockSize-1)/maxBlockSize, 0)
		l.sparse += uint64(size - at)
	}
	if stored == 0 {
		return l, nil
	}
	l.start = s.off
	if err := s.sink.Cut(Cut{Path: name, Size: stored}); err != nil {
		return nil, err
	}
	if s.buf == nil {
		s.buf = make([]byte, maxBlockSize)
	}
	copier, _ := f.(Copier)
	for _, r := range ranges {
		for r.Len > 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n := r.Len
			if copier != nil {
				k, copied, err := copier.CopyTo(s.sink, r.Off, r.Len)
				if err != nil {
					return nil, err
				}
				if copied {
					s.off += uint64(k)
					r.Off += k
					r.Len -= k
					continue
				}
				n = k
			}
			p := s.buf[:min(n, int64(len(s.buf)))]
			if err := readExactly(f, p, r.Off); err != nil {
				return nil, err
			}
			if _, err := s.Write(p); err != nil {
				return nil, err
			}
			r.Off += int64(len(p))
			r.Len -= int64(len(p))
		}
	}
	return l, nil
}

// blockRanges widens extents to whole blocks, cut at size, and joins what then touches.
func blockRanges(extents []Extent, size, block int64) []Extent {
	var out []Extent
	for _, x := range extents {
		from := x.Off / block * block
		to := min((x.Off+x.Len+block-1)/block*block, size)
		if n := len(out); n > 0 && from <= out[n-1].Off+out[n-1].Len {
			out[n-1].Len = to - out[n-1].Off
		} else {
			out = append(out, Extent{from, to - from})
		}
	}
	return out
}

// Write appends to the image.
func (s *storeData) Write(p []byte) (int, error) {
	n, err := s.sink.Write(p)
	s.off += uint64(n)
	if err == nil && n != len(p) {
		err = io.ErrShortWrite
	}
	return n, err
}

func (s *storeData) cut(table string, size uint64) error {
	return s.sink.Cut(Cut{Size: int64(size), Meta: true, Table: table})
}

func (s *storeData) header(p []byte) error { return s.sink.Header(p) }
