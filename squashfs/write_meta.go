package squashfs

import "encoding/binary"

// compressor compresses one block. It appends to dst. ok is false if src is better stored uncompressed.
type compressor interface {
	compress(dst, src []byte) (out []byte, ok bool, err error)
}

// noCompressor stores everything uncompressed.
type noCompressor struct{}

func (noCompressor) compress(dst, _ []byte) ([]byte, bool, error) { return dst, false, nil }

// metaWriter cuts a table into metadata blocks. For one goroutine.
type metaWriter struct {
	out        *spool
	compressor compressor
	buf        []byte   // the block being filled
	compressed []byte   // scratch
	starts     []uint64 // of each finished block in out
}

func newMetaWriter(out *spool, p compressor) *metaWriter {
	return &metaWriter{out: out, compressor: p, buf: make([]byte, 0, metadataSize)}
}

// tell is the position of the next byte.
func (m *metaWriter) tell() Ref { return makeRef(uint64(m.out.size), len(m.buf)) }

func (m *metaWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		k := min(len(b), metadataSize-len(m.buf))
		m.buf = append(m.buf, b[:k]...)
		b = b[k:]
		if len(m.buf) == metadataSize {
			if err := m.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// flush ends the block; a table ends with it.
func (m *metaWriter) flush() error {
	if len(m.buf) == 0 {
		return nil
	}
	m.starts = append(m.starts, uint64(m.out.size))
	compressed, ok, err := m.compressor.compress(append(m.compressed[:0], 0, 0), m.buf)
	if err != nil {
		return err
	}
	m.compressed = compressed
	if ok {
		binary.LittleEndian.PutUint16(compressed, uint16(len(compressed)-2))
		_, err = m.out.Write(compressed)
	} else {
		header := binary.LittleEndian.AppendUint16(nil, uint16(len(m.buf))|metadataUncompressed)
		if _, err = m.out.Write(header); err == nil {
			_, err = m.out.Write(m.buf)
		}
	}
	m.buf = m.buf[:0]
	return err
}
