package sandbox

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"snapfs/internal/processes"
	"snapfs/sandbox/internal/catalog"
)

// A mount namespace is known by a number that the kernel gives to another one when it is gone. So a record also has what
// proves which one it is, and nothing is mounted in another by mistake:
//
//	BOOT mnt:[4026531841] id:8589934595         the id of the namespace (Linux 6.11)
//	BOOT mnt:[4026531841] process:1:38          a process that has it, and when that was started
//	BOOT mnt:[4026531841]                       of earlier versions
const (
	proofID      = "id:"
	proofProcess = "process:"
)

// recorded is how a record names the namespace of a view.
func (h *Home) recorded(v view) string {
	if v.own() {
		v = view{ns: h.ns, id: namespaceID(os.Getpid())}
	}
	name := h.boot + " " + v.ns
	if v.id != 0 {
		return name + " " + proofID + strconv.FormatUint(v.id, 10)
	}
	if pid, started := oldestIn(v.ns); pid != 0 {
		return fmt.Sprintf("%s %s%d:%d", name, proofProcess, pid, started)
	}
	return name
}

// viewRecorded finds the view of a record again: ok is false if its namespace is gone for good, or nothing proves that
// the one of its number is not another one.
func (h *Home) viewRecorded(m *catalog.Mount) (v view, ok bool) {
	boot, name, named := strings.Cut(m.Namespace, " ")
	ns, proof, _ := strings.Cut(name, " ")
	if !named || boot != h.boot {
		return view{}, !m.Apart
	}
	if ns == h.ns && (proof == "" || !m.Apart) {
		return view{}, true
	}
	v, proven := proves(ns, proof)
	if proven && ns == h.ns {
		return view{}, true
	}
	return v, proven || !m.Apart
}

// proves finds a process of the namespace that a record proves.
func proves(ns, proof string) (view, bool) {
	if text, ok := strings.CutPrefix(proof, proofID); ok {
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil || id == 0 {
			return view{}, false
		}
		v := view{ns: ns, id: id}
		v.pid = v.process()
		if v.pid == 0 {
			return view{}, false
		}
		return v, true
	}
	var pid int
	var started uint64
	if _, err := fmt.Sscanf(proof, proofProcess+"%d:%d", &pid, &started); err != nil {
		return view{}, false
	}
	v := view{ns: ns, pid: pid}
	if startTime(pid) != started || !v.has(pid) {
		return view{}, false
	}
	return v, true
}

// has reports whether a process is in the namespace of a view.
func (v view) has(pid int) bool {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	return err == nil && link == v.ns && (v.id == 0 || namespaceID(pid) == v.id)
}

// process finds a process of the namespace of a view; that which was known is looked at first. 0 if there is none, or
// none is visible.
func (v view) process() int {
	if v.pid != 0 && v.has(v.pid) {
		return v.pid
	}
	found := 0
	processes.Each(func(_ string, pid int) bool {
		if v.has(pid) {
			found = pid
		}
		return found == 0
	})
	return found
}

// namespaceID is the id of the mount namespace of a process, 0 if the kernel does not tell.
func namespaceID(pid int) uint64 {
	ns, err := openNamespace(pid)
	if err != nil {
		return 0
	}
	defer func() { _ = ns.Close() }() // nothing is written
	var id uint64
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, ns.Fd(), unix.NS_GET_MNTNS_ID, uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return 0
	}
	return id
}

// oldestIn finds the process of a mount namespace that was started first, which is likely to be there as long as the
// namespace; 0 if none is visible.
func oldestIn(ns string) (pid int, started uint64) {
	started = math.MaxUint64
	v := view{ns: ns}
	processes.Each(func(_ string, p int) bool {
		if v.has(p) {
			if at := startTime(p); at != 0 && at < started {
				pid, started = p, at
			}
		}
		return true
	})
	return pid, started
}

// startTime is when a process was started, in ticks since the boot; 0 if it is gone.
func startTime(pid int) uint64 {
	s, _ := processes.StatOfProcess(pid)
	return s.Started
}
