package fs

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"

	"snapfs/fs/internal/proto"
	"snapfs/internal/livestate"
)

// What a successor must know of a connection, in the region of livestate that is meant for it. Little endian:
//
//	 0  version u32; 0: nothing is kept. Written last
//	 4  CRC-32C of the rest, u32
//	 8  device number of the file system u64
//	16  flags u32: keptPlaced, keptHelper
//	20  size of INIT u16, size of its answer u16
//	24  INIT, with its header, padded to 8 bytes, and the answer, with its own
const (
	keptVersion = 1
	keptHead    = 24
	// maxNegotiation bounds INIT and its answer together, in bytes; they have 104 and 80.
	maxNegotiation = 1 << 10

	keptPlaced = 1 << 0 // attached by Options.Place
	keptHelper = 1 << 1 // mounted by fusermount3
)

const (
	initInSize  = int(unsafe.Sizeof(fuse.InitIn{})) // with the header
	initOutSize = proto.OutHeaderSize + int(unsafe.Sizeof(fuse.InitOut{}))
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// kept is what was kept of a connection.
type kept struct {
	dev    uint64
	flags  uint32
	init   []byte // INIT, with its header
	answer fuse.InitOut
}

// capabilities were negotiated.
func (k *kept) capabilities() uint64 { return k.answer.Flags64() }

// keep keeps what was negotiated, if the mount may outlive this process.
func (m *Mount) keep(request, answer []byte) {
	if m.live == nil {
		return
	}
	var flags uint32
	switch {
	case m.point == nil:
		flags = keptPlaced
	case !m.point.Direct():
		flags = keptHelper
	}
	b := m.live.Connection()
	binary.LittleEndian.PutUint32(b, 0)
	if len(request)%8 != 0 || len(request)+len(answer) > maxNegotiation {
		m.log.Warn("a mount cannot outlive its server: INIT has an unknown size")
		return
	}
	binary.LittleEndian.PutUint64(b[8:], m.dev)
	binary.LittleEndian.PutUint32(b[16:], flags)
	binary.LittleEndian.PutUint16(b[20:], uint16(len(request)))
	binary.LittleEndian.PutUint16(b[22:], uint16(len(answer)))
	n := keptHead + copy(b[keptHead:], request)
	n += copy(b[n:], answer)
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:n], castagnoli))
	binary.LittleEndian.PutUint32(b, keptVersion)
}

// readKept reads what another process has kept. livestate.ErrFormat if it cannot be used.
func readKept(live *livestate.State) (k kept, err error) {
	b := slices.Clone(live.Connection()) // others may write to it
	if v := binary.LittleEndian.Uint32(b); v != keptVersion {
		return k, fmt.Errorf("%w: connection of version %d", livestate.ErrFormat, v)
	}
	in, out := int(binary.LittleEndian.Uint16(b[20:])), int(binary.LittleEndian.Uint16(b[22:]))
	if in+out > maxNegotiation || in%8 != 0 || in < initInSize || out < initOutSize {
		return k, fmt.Errorf("%w: INIT of %d bytes, its answer of %d", livestate.ErrFormat, in, out)
	}
	if binary.LittleEndian.Uint32(b[4:]) != crc32.Checksum(b[8:keptHead+in+out], castagnoli) {
		return k, fmt.Errorf("%w: wrong checksum of the connection", livestate.ErrFormat)
	}
	k.dev, k.flags = binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])
	k.init = b[keptHead : keptHead+in]
	k.answer = *proto.View[fuse.InitOut](b[keptHead+in+proto.OutHeaderSize:])
	return k, nil
}
