package layers

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// blockState says whose a block of a partial file is. The values are those of the format.
type blockState uint8

const (
	blockBelow blockState = iota // the layers below have it
	blockOwn                     // the layer has all of it
	blockLoose                   // the layer has it, and where its host has a hole it is zeros
)

const (
	blockShift = 16      // blocks of 64 KiB: see doc.go
	maxBlocks  = 1 << 20 // of a file; of longer ones blocks are larger
	maxPartial = 1 << 44 // bytes of a file: a block of it has 32 MiB at most, which an operation may hold in memory

	blocksVersion = 1
	blocksHeader  = 32
)

// inlineStates is how many bytes of states are kept in the attribute; more are in a side file. Tests set it.
var inlineStates = 512

// blockMap says which blocks of a partial file are its layer's own. The format is drawn in doc.go.
//
// A block is claimed when its data is in the host's file, never before: what kills the process leaves old contents.
// After a power failure the host may have kept the claim and lost the data: see settle.
type blockMap struct {
	shift uint8 // log2 of the block size; immutable

	// mu is held for writing while blocks are claimed or the length changes, for reading while own blocks are written.
	mu     lockorder.RWMutex[lockorder.BlockMap]
	limit  int64  // bytes of the layers below that may show; what is beyond is the layer's own; guarded by mu
	states []byte // two bits per block; guarded by mu
	owned  int64  // blocks that are not blockBelow; guarded by mu
	short  bool   // the file may be shorter than limit; guarded by mu
	boot   uint64 // when the last claim was made; guarded by mu
	side   uint64 // number of the side file, 0: none; guarded by mu
	dir    string // where the layer has side files; guarded by mu
}

// newBlockMap is that of a file of which all size bytes are below.
func newBlockMap(size int64, dir string) *blockMap {
	m := &blockMap{shift: blockShift, limit: size, boot: bootID(), dir: dir}
	if blocks := uint64(size) >> blockShift; blocks >= maxBlocks {
		m.shift += uint8(bits.Len64(blocks / maxBlocks))
	}
	m.states = make([]byte, m.stateBytes())
	return m
}

func (m *blockMap) stateBytes() int64 {
	blocks := (m.limit + 1<<m.shift - 1) >> m.shift
	return (blocks + 3) / 4
}

// state of a block that begins below limit. mu is held.
func (m *blockMap) state(b int64) blockState {
	return blockState(m.states[b/4] >> (b % 4 * 2) & 3)
}

// set changes states in memory. mu is held for writing.
func (m *blockMap) set(b int64, s blockState) {
	if m.state(b) == blockBelow {
		m.owned++
	}
	shift := b % 4 * 2
	m.states[b/4] = m.states[b/4]&^(3<<shift) | byte(s)<<shift
}

// run tells whose the byte at off is and how many bytes from there on, at most most, are of the same. mu is held.
func (m *blockMap) run(off, most int64) (own bool, n int64) {
	if off >= m.limit {
		return true, most
	}
	b, end := off>>m.shift, min(off+most, m.limit)
	own = m.state(b) != blockBelow
	for b++; b<<m.shift < end; b++ {
		if !own && b%4 == 0 && m.states[b/4] == 0 {
			b += 3
			continue
		}
		if (m.state(b) != blockBelow) != own {
			return own, b<<m.shift - off
		}
	}
	if own && end == m.limit {
		return true, most
	}
	return own, end - off
}

// claim gives blocks from first to last states and makes that outlive the process. mu is held for writing.
func (m *blockMap) claim(p location, first, last int64, state func(b int64) blockState) error {
	from, to := first/4, last/4+1
	old, owned := append([]byte{}, m.states[from:to]...), m.owned
	for b := first; b <= last; b++ {
		if s := state(b); s != m.state(b) {
			m.set(b, s)
		}
	}
	err := m.save(p, from, to)
	if err != nil {
		copy(m.states[from:], old)
		m.owned = owned
	}
	return err
}

// save writes states changed from byte from on. mu is held for writing.
func (m *blockMap) save(p location, from, to int64) error {
	if m.side == 0 {
		return m.put(p)
	}
	fd, err := m.openSide(unix.O_RDWR)
	if errors.Is(err, unix.ENOENT) {
		return nil // the layer is gone, and the file has no name: nobody looks for its blocks after this process
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return pwriteFull(fd, m.states[from:to], from)
}

// put writes the attribute, and a side file where one is needed and not there yet. mu is held for writing, or the map
// is not in use yet.
func (m *blockMap) put(p location) error {
	if m.side == 0 && len(m.states) <= inlineStates {
		err := p.setxattr(xattrBlocks, m.encode(), 0)
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.E2BIG) && !errors.Is(err, unix.ERANGE) {
			return err
		}
	}
	if m.side == 0 {
		if err := m.makeSide(); err != nil {
			return err
		}
	}
	return p.setxattr(xattrBlocks, m.encode(), 0)
}

// makeSide moves the states into a side file.
func (m *blockMap) makeSide() error {
	if err := os.Mkdir(m.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	var name [8]byte
	_, _ = rand.Read(name[:]) // never fails
	m.side = binary.LittleEndian.Uint64(name[:]) | 1
	fd, err := m.openSide(unix.O_RDWR | unix.O_CREAT | unix.O_EXCL)
	if err == nil {
		err = pwriteFull(fd, []byte(strings.TrimRight(string(m.states), "\x00")), 0)
		_ = unix.Close(fd) // the write was checked
	}
	if err != nil {
		m.side = 0
	}
	return err
}

func (m *blockMap) openSide(flags int) (int, error) {
	return openat(unix.AT_FDCWD, m.sidePath(), flags, 0o600)
}

func (m *blockMap) sidePath() string { return filepath.Join(m.dir, strconv.FormatUint(m.side, 16)) }

// encode makes the attribute's value. mu is held.
func (m *blockMap) encode() []byte {
	b := make([]byte, blocksHeader, blocksHeader+len(m.states))
	b[0], b[1] = blocksVersion, m.shift
	binary.LittleEndian.PutUint64(b[8:], uint64(m.limit))
	binary.LittleEndian.PutUint64(b[16:], m.boot)
	binary.LittleEndian.PutUint64(b[24:], m.side)
	if m.side == 0 {
		b = append(b, strings.TrimRight(string(m.states), "\x00")...)
	}
	return b
}

// parseBlockMap reads an attribute and the side file that it names.
func parseBlockMap(b []byte, dir string) (*blockMap, error) {
	if len(b) < blocksHeader || b[0] != blocksVersion {
		return nil, errors.New("block map of an unknown version")
	}
	m := &blockMap{
		shift: b[1], dir: dir, limit: int64(binary.LittleEndian.Uint64(b[8:])),
		boot: binary.LittleEndian.Uint64(b[16:]), side: binary.LittleEndian.Uint64(b[24:]),
		short: true,
	}
	if m.shift < blockShift || m.shift > 25 || m.limit < 0 || m.limit>>m.shift > maxBlocks {
		return nil, fmt.Errorf("block map with %d bytes in blocks of 2^%d", m.limit, m.shift)
	}
	m.states = make([]byte, m.stateBytes())
	if m.side == 0 {
		copy(m.states, b[blocksHeader:])
	} else {
		fd, err := m.openSide(unix.O_RDONLY)
		if err != nil {
			return nil, fmt.Errorf("block map: %w", err)
		}
		_, err = preadFull(fd, m.states, 0)
		_ = unix.Close(fd)                         // read only
		if err != nil && !errors.Is(err, io.EOF) { // zeros at the end may be missing
			return nil, fmt.Errorf("block map: %w", err)
		}
	}
	for b := range (m.limit + 1<<m.shift - 1) >> m.shift {
		if m.state(b) != blockBelow {
			m.owned++
		}
	}
	return m, nil
}

// bootID tells boots of the machine apart. Tests set it.
var bootID = sync.OnceValue(func() uint64 {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	id, err := strconv.ParseUint(strings.ReplaceAll(string(b[:min(18, len(b))]), "-", ""), 16, 64)
	if err != nil {
		return 0
	}
	return id
})
