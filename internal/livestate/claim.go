package livestate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
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
	began, _ := lifeOf(pid)
	if began == 0 {
		return errors.New("claim a mount: /proc is not mounted")
	}
	for {
		old := s.claim().Load()
		if old != 0 {
			if began, alive := lifeOf(int(old >> 32)); alive && began == uint32(old) {
				return fmt.Errorf("%w: process %d", ErrClaimed, old>>32)
			}
		}
		if s.claim().CompareAndSwap(old, uint64(pid)<<32|uint64(began)) {
			return nil
		}
	}
}

// Release ends the claim.
func (s *State) Release() { s.claim().Store(0) }

// lifeOf gives when a process began, in the kernel's ticks and never 0, and whether it goes on: one that is a zombie, or
// was killed, does not. See proc_pid_stat(5) and proc_pid_status(5).
func lifeOf(pid int) (began uint32, alive bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name before may hold anything
	const state, starttime = 0, 19                                       // fields 3 and 22 of the whole line
	if len(f) <= starttime {
		return 0, false
	}
	ticks, err := strconv.ParseUint(f[starttime], 10, 64)
	if err != nil {
		return 0, false
	}
	began = uint32(ticks) | 1
	return began, f[state] != "Z" && f[state] != "X" && !killed(dir)
}

// killed reports whether SIGKILL is pending: all threads of a process have that when it ends.
func killed(dir string) bool {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(status), "\nSigPnd:\t")
	mask, _, _ := strings.Cut(after, "\n")
	pending, err := strconv.ParseUint(mask, 16, 64)
	return err == nil && pending&(1<<(unix.SIGKILL-1)) != 0
}
