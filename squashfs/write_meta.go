package squashfs

import "encoding/binary"

// packer compresses one block. It appends to dst and gives ok false if src is better stored as it is.
type packer interface {
	pack(dst, src []byte) (out []byte, ok bool, err error)
}

// storePacker stores everything as it is.
type storePacker struct{}

func (storePacker) pack(dst, _ []byte) ([]byte, bool, error) { return dst, false, nil }

// metaWriter cuts a table into metadata blocks. For one goroutine.
type metaWriter struct {
	out    *spool
	packer packer
	buf    []byte   // the block being filled
	packed []byte   // scratch
	starts []uint64 // of each finished block in out
}

func newMetaWriter(out *spool, p packer) *metaWriter {
	return &metaWriter{out: out, packer: p, buf: make([]byte, 0, metadataSize)}
}

// tell is where the next byte will be.
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
	packed, ok, err := m.packer.pack(append(m.packed[:0], 0, 0), m.buf)
	if err != nil {
		return err
	}
	m.packed = packed
	if ok {
		binary.LittleEndian.PutUint16(packed, uint16(len(packed)-2))
		_, err = m.out.Write(packed)
	} else {
		header := binary.LittleEndian.AppendUint16(nil, uint16(len(m.buf))|metadataUncompressed)
		if _, err = m.out.Write(header); err == nil {
			_, err = m.out.Write(m.buf)
		}
	}
	m.buf = m.buf[:0]
	return err
}
