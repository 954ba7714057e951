package transport

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/lockorder"
)

// A slot is the memory of one ring entry. The head is struct fuse_uring_req_header of include/uapi/linux/fuse.h:
//
//	  0  fuse_in_header of a request, fuse_out_header of the answer
//	128  the request's own fixed part (struct fuse_getattr_in, ...)
//	256  struct fuse_uring_ent_in_out: flags u64, commit id u64, size of the payload u32, reserved
//	288
//
// All else, of request and answer, is in the payload.
const (
	headOp      = 128
	headEntry   = 256
	headCommit  = headEntry + 8
	headPayload = headEntry + 16
	headSize    = 288
	headStride  = 320 // whole cache lines

	slabSlots = 64
)

type slot struct {
	head    []byte // headSize
	payload []byte // MaxIO
}

// slotStore gives slots to all mounts of the process. Payloads are address space only until they are used; that is
// why they are not Go's memory, and why large pages are refused: a page is touched for most requests, 256 for few.
type slotStore struct {
	mu   lockorder.Mutex[lockorder.Slots]
	free []slot // guarded by mu
}

var slots slotStore

// get gives a slot without memory behind its payload.
func (s *slotStore) get() (slot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		if err := s.grow(); err != nil {
			return slot{}, err
		}
	}
	last := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return last, nil
}

// grow makes a slab of slots. Slabs are never given back: the address space of their payloads costs nothing.
func (s *slotStore) grow() error {
	const prot, flags = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	mem, err := mmap(-1, 0, slabSlots*(MaxIO+headStride), prot, flags)
	if err != nil {
		return err
	}
	err = unix.Madvise(mem, unix.MADV_NOHUGEPAGE)
	if err != nil && err != unix.EINVAL { //nolint:errorlint // raw errno; EINVAL: a kernel without large pages
		_ = unix.Munmap(mem) // never used
		return err
	}
	heads := mem[slabSlots*MaxIO:]
	for i := range slabSlots {
		s.free = append(s.free, slot{
			head:    heads[i*headStride : i*headStride+headSize : i*headStride+headSize],
			payload: mem[i*MaxIO : (i+1)*MaxIO : (i+1)*MaxIO],
		})
	}
	return nil
}

// put takes a slot that the kernel no longer knows.
func (s *slotStore) put(x slot, used int) {
	if used > 0 {
		_ = unix.Madvise(x.payload[:pages(used)], unix.MADV_DONTNEED) // a plain mapping: cannot fail
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, x)
}

var pageSize = unix.Getpagesize()

// pages rounds up to whole pages.
func pages(n int) int { return (n + pageSize - 1) &^ (pageSize - 1) }

// scratch is an empty range of address space, as large as a payload, to which the pages of an idle payload are moved to
// be freed.
type scratch []byte

func newScratch() (scratch, error) {
	return mmap(-1, 0, MaxIO, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
}

// moveOut moves the pages of a payload's first n bytes, a multiple of the page size, into the scratch range. The
// payload is empty from then on. Freeing them where they are would lose a request that the kernel has put there
// meanwhile.
func (a scratch) moveOut(payload []byte, n int) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_MREMAP, uintptr(unsafe.Pointer(&payload[0])), uintptr(n), uintptr(n),
		unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED|unix.MREMAP_DONTUNMAP, uintptr(unsafe.Pointer(&a[0])), 0)
	return errno
}

// moveBack copies the first n bytes back, of a request that came before moveOut; if it came later they are in the
// payload.
func (a scratch) moveBack(payload []byte, n int) {
	here := make([]byte, 1)
	if mincore(payload[:pageSize], here) != nil || here[0]&1 == 0 {
		copy(payload[:n], a[:n])
	}
}

// mincore is mincore(2): of each page of mem, whether there is memory behind it.
func mincore(mem, pages []byte) error {
	_, _, errno := unix.RawSyscall(unix.SYS_MINCORE,
		uintptr(unsafe.Pointer(&mem[0])), uintptr(len(mem)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

// discard frees the pages in the scratch range.
func (a scratch) discard(n int) {
	_ = unix.Madvise(a[:n], unix.MADV_DONTNEED) // a plain mapping: cannot fail
}
