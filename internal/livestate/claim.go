package livestate

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"snapfs/internal/processes"
)

// ErrClaimed says that a mount is served already.
var ErrClaimed = errors.New("a process serves this mount already")

// A claim names the process that serves a mount: its number in the upper half, and of the time when it began the lower
// half, so that a number that was used again is recognised. 0: nobody does. A lock of the file would not do: a process
// that was killed keeps its files open as long as one of its threads waits in the kernel, perhaps for an answer of its
// successor.
func (s *State) claim() *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.fixed[claimAt]))
}

// Claim makes this process the one that serves the mount. ErrClaimed if one does, this one included, that was not
// killed.
func (s *State) Claim() error {
	pid := os.Getpid()
	began, _ := processes.Life(pid)
	if began == 0 {
		return errors.New("claim a mount: /proc is not mounted")
	}
	for {
		old := s.claim().Load()
		if old != 0 {
			if began, alive := processes.Life(int(old >> 32)); alive && began == uint32(old) {
				return fmt.Errorf("%w: process %d", ErrClaimed, old>>32)
			}
		}
		if s.claim().CompareAndSwap(old, uint64(pid)<<32|uint64(began)) {
			return nil
		}
	}
}

// Claimant is the process that has claimed the mount last; 0 if none has, or it has given the mount up.
func (s *State) Claimant() int { return int(s.claim().Load() >> 32) }

// Release ends the claim.
func (s *State) Release() { s.claim().Store(0) }
