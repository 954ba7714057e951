// Package livestate is memory that outlives the process which serves a mount: what its successor must know of the
// connection. It lies in a memory file (memfd), of which a holder process keeps a descriptor. Nothing of it is ever
// written to a disk, and it is gone when the last descriptor is closed.
//
// The file has regions, each of which one package writes:
//
//	0       header      magic, version, which process serves the mount; this package
//	4 KiB   connection  what was negotiated with the kernel; package fs
//	8 KiB   intents     requests that are being handled: Requests; package fs, with facts of package layers
//	128 KiB nodes       what the kernel knows by a node id; package layers. Grows.
//
// A process may be killed between any two stores to it. Writers order their stores such that a reader can use, or
// recognise and leave out, whatever it finds.
package livestate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Sizes and places of the regions, in bytes.
const (
	ConnectionSize = 4 << 10
	IntentsSize    = 120 << 10

	headerSize  = 4 << 10
	intentsAt   = headerSize + ConnectionSize
	nodesAt     = intentsAt + IntentsSize
	maxNodeSize = 16 << 30 // of the nodes' region
)

const (
	magic   = "snapfslv"
	version = 1

	claimAt = 16 // in the header
)

// ErrFormat says that a file is not the state of a mount, or of another version.
var ErrFormat = errors.New("not the live state of a mount, or one of another version")

// State is the memory of one mount. Neither its methods nor the regions are guarded: callers do that.
type State struct {
	f     *os.File
	fixed []byte // header, connection, intents
	nodes []byte

	once     sync.Once
	requests *Requests // set by once
}

// Create makes an empty state. name is shown in /proc.
func Create(name string) (*State, error) {
	fd, err := unix.MemfdCreate("snapfs-"+name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL|unix.MFD_ALLOW_SEALING)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("snapfs-"+name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "live state of "+name)
	// What has been mapped must not be cut off under a reader.
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	err = errors.Join(err, f.Truncate(nodesAt))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s := &State{f: f}
	if err := s.mapFixed(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	binary.LittleEndian.PutUint32(s.fixed[8:], version)
	copy(s.fixed, magic)
	return s, nil
}

// Open opens the state that another process has made, and takes the descriptor over unless it fails. ErrFormat for what
// is none, which includes a file that could shrink.
func Open(f *os.File) (*State, error) {
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&unix.F_SEAL_SHRINK == 0 {
		return nil, fmt.Errorf("%w: no sealed memory file", ErrFormat)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if fi.Size() < nodesAt || fi.Size() > nodesAt+maxNodeSize {
		return nil, fmt.Errorf("%w: %d bytes", ErrFormat, fi.Size())
	}
	s := &State{f: f}
	if err := s.mapFixed(); err != nil {
		return nil, err
	}
	if string(s.fixed[:len(magic)]) != magic || binary.LittleEndian.Uint32(s.fixed[8:]) != version {
		return nil, errors.Join(ErrFormat, unix.Munmap(s.fixed))
	}
	if size := int(fi.Size() - nodesAt); size > 0 {
		if _, err := s.Nodes(size); err != nil {
			return nil, errors.Join(err, unix.Munmap(s.fixed))
		}
	}
	return s, nil
}

func (s *State) mapFixed() error {
	b, err := unix.Mmap(int(s.f.Fd()), 0, nodesAt, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	s.fixed = b
	return nil
}

// File is the descriptor of the memory, for the holder. It belongs to the state.
func (s *State) File() *os.File { return s.f }

// Connection is the region of what was negotiated with the kernel, zeros at first.
func (s *State) Connection() []byte { return s.fixed[headerSize:intentsAt:intentsAt] }

// Intents is the region of requests that are being handled, zeros at first.
func (s *State) Intents() []byte { return s.fixed[intentsAt:nodesAt:nodesAt] }

// Nodes maps the region of nodes with at least size bytes, zeros where nothing was written yet, and gives all of it. The
// mapping given before stays valid and shows the same memory: a caller that grows the region unmaps that with Unmap once
// nobody uses it. ENOSPC if the region cannot be as large.
func (s *State) Nodes(size int) ([]byte, error) {
	if size > maxNodeSize || size > math.MaxInt-nodesAt {
		return nil, unix.ENOSPC
	}
	if size <= len(s.nodes) {
		return s.nodes, nil
	}
	if err := s.grow(int64(nodesAt + size)); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(s.f.Fd()), nodesAt, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	s.nodes = b
	return b, nil
}

func (s *State) grow(size int64) error {
	fi, err := s.f.Stat()
	if err != nil || fi.Size() >= size {
		return err
	}
	return s.f.Truncate(size)
}

// Unmap ends a mapping that Nodes has replaced by a larger one.
func (s *State) Unmap(nodes []byte) error {
	if len(nodes) == 0 || len(nodes) == len(s.nodes) {
		return nil
	}
	return unix.Munmap(nodes)
}

// Close ends the mappings and closes the descriptor. The memory lives as long as the holder has another.
func (s *State) Close() error {
	err := unix.Munmap(s.fixed)
	if len(s.nodes) > 0 {
		err = errors.Join(err, unix.Munmap(s.nodes))
	}
	s.fixed, s.nodes = nil, nil
	return errors.Join(err, s.f.Close())
}
