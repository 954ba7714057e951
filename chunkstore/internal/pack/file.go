package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"snapfs/chunkstore/internal/disk"
)

// Format of a pack.
const (
	magic      = "snapPACK"
	version    = 1
	HeaderSize = 20        // bytes before the first record
	maxSize    = 64 << 20  // a pack that has reached this length takes no more records,
	minSize    = 256 << 10 // or this one, in a small store,
	packShare  = 16        // or this part of all
	Ext        = ".pack"   // of a pack's name
	MaxOffset  = 1<<36 - 1 // of a record; packs are shorter by far
	keepFree   = 32 << 20  // what packs leave free: the index needs room to delete and to collect
)

// Header makes the header of a file of records: a pack, or a journal, which has a magic of its own.
func Header(magic string, num uint32) []byte {
	h := append(make([]byte, 0, HeaderSize), magic...)
	h = binary.LittleEndian.AppendUint16(h, version)
	h = binary.LittleEndian.AppendUint16(h, 0)
	h = binary.LittleEndian.AppendUint32(h, num)
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, crcTable))
}

// IsHeader reports whether h, HeaderSize bytes, is the header of a pack of this number.
func IsHeader(h []byte, num uint32) bool {
	return string(h[:8]) == magic && binary.LittleEndian.Uint16(h[8:]) == version &&
		binary.LittleEndian.Uint32(h[12:]) == num &&
		binary.LittleEndian.Uint32(h[16:]) == crc32.Checksum(h[:16], crcTable)
}

// Name gives the name of a pack's file.
func Name(num uint32) string { return fmt.Sprintf("%08d%s", num, Ext) }

// ParseName gives the number of the pack whose file has this name; false if it is no pack's.
func ParseName(name string) (num uint32, ok bool) {
	base, ok := strings.CutSuffix(name, Ext)
	n, err := strconv.ParseUint(base, 10, 32)
	return uint32(n), ok && err == nil
}

// Location is where a record lies.
type Location struct {
	Pack uint32 // number
	Off  int64  // in the pack's file
	Len  int64
}

// End is the offset behind the record.
func (p Location) End() int64 { return p.Off + p.Len }

// file is an open pack.
type file struct {
	num   uint32
	f     *os.File
	size  int64  // end of what was appended; changed with Set.appendMu and Set.mu held
	alloc int64  // end of what is allocated; guarded by Set.appendMu
	index int64  // end of what the index names; guarded by Set.mu
	holes int64  // bytes that take no space; guarded by Set.mu
	mark  uint64 // of the last Punch; guarded by Set.mu
	holds int    // appenders whose records the index may not name yet; guarded by Set.mu
	users int    // reads under way, plus one while it belongs to the store; guarded by Set.mu

	failed error // of its last sync, until its holders are gone; guarded by Set.mu
}

// reserve allocates space ahead for n more bytes, so that a file grows in few extents, and leaves keep bytes of the disk
// free; Set.appendMu is held.
func (p *file) reserve(dir string, n, keep int64) error {
	if p.size+n <= p.alloc {
		return nil
	}
	if err := disk.Require(dir, n+keep); err != nil {
		return err
	}
	step := min(max(p.size/2, 64<<10), 8<<20)
	want := p.size + n + step
	err := disk.Allocate(p.f, p.alloc, want-p.alloc)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		want = p.size + n
		err = disk.Allocate(p.f, p.alloc, want-p.alloc)
	}
	if err != nil {
		return fmt.Errorf("allocate pack %d: %w", p.num, err)
	}
	p.alloc = want
	return nil
}

// trim gives back what was allocated ahead; Set.appendMu is held.
func (p *file) trim() error {
	if p.alloc <= p.size {
		return nil
	}
	p.alloc = p.size
	return p.f.Truncate(p.size)
}
